// SPDX-License-Identifier: Apache-2.0
// Senders and echoers of the study of scaling by roscpp; the same programs, lines and samples as
// echo.py. Arguments: ROLE NUMBERS OTHERS|own FOLDER KIND BYTES [nodelay].
#include <ros/ros.h>
#include <sensor_msgs/Image.h>
#include <sensor_msgs/LaserScan.h>
#include <std_msgs/String.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <mutex>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

// Length of the queues, as in the thesis (section 4).
static const uint32_t QUEUE = 1000;
static const size_t DIGITS = 15;
// Bytes of the length before the text of a std_msgs/String in ROS 1.
static const size_t TEXT_HEAD = 4;
static const uint64_t WARM_UP = 100000000000000;

static uint64_t now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return uint64_t(now.tv_sec) * 1000000000 + uint64_t(now.tv_nsec);
}

static void sleep_until(uint64_t at_ns) {
    timespec at{time_t(at_ns / 1000000000), long(at_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
    }
}

static void say(const std::string& text) { std::cout << text << std::endl; }

static std::string digits(uint64_t sequence) {
    char text[DIGITS + 1];
    snprintf(text, sizeof text, "%015llu", (unsigned long long)sequence);
    return text;
}

// What differs between the kinds of messages.
template <class M> struct Contents {
    static void number(M& message, uint64_t sequence) { message.header.frame_id = digits(sequence); }
    static uint64_t read(const M& message) { return std::stoull(message.header.frame_id); }
    static M filled(size_t bytes);
};

template <> void Contents<std_msgs::String>::number(std_msgs::String& message, uint64_t sequence) {
    message.data.replace(0, DIGITS, digits(sequence));
}
template <> uint64_t Contents<std_msgs::String>::read(const std_msgs::String& message) {
    return std::stoull(message.data.substr(0, DIGITS));
}
template <> std_msgs::String Contents<std_msgs::String>::filled(size_t bytes) {
    std_msgs::String message;
    message.data.assign(bytes - TEXT_HEAD, 'x');
    return message;
}
// A PR2's scan. With the 15 characters of its number, it has 4227 bytes.
template <> sensor_msgs::LaserScan Contents<sensor_msgs::LaserScan>::filled(size_t) {
    sensor_msgs::LaserScan message;
    message.range_min = 0.1f, message.range_max = 30.0f;
    std::mt19937 noise(1);
    std::uniform_real_distribution<float> range(0.1f, 30.0f);
    for (int beam = 0; beam < 1040; beam++) message.ranges.push_back(range(noise));
    return message;
}
// A raw image of a camera with a Bayer pattern.
template <> sensor_msgs::Image Contents<sensor_msgs::Image>::filled(size_t) {
    sensor_msgs::Image message;
    message.width = 640, message.height = 480, message.step = 640;
    message.encoding = "bayer_grbg8";
    std::mt19937 noise(1);
    message.data.resize(640 * 480);
    for (auto& pixel : message.data) pixel = uint8_t(noise());
    return message;
}

struct Arguments {
    // If `others` is empty, the other end of each number has the same number.
    std::vector<int> numbers, others;
    std::vector<int> others_of(int number) const {
        return others.empty() ? std::vector<int>{number} : others;
    }
    std::string folder, kind;
    size_t bytes;
    bool nodelay;
    ros::TransportHints hints() const {
        return nodelay ? ros::TransportHints().tcpNoDelay() : ros::TransportHints();
    }
};

static std::string out(const Arguments& arguments, int sender) {
    return "/out/" + arguments.kind + "/s" + std::to_string(sender);
}
static std::string back(const Arguments& arguments, int sender, int echoer) {
    return "/back/" + arguments.kind + "/s" + std::to_string(sender) + "_e" + std::to_string(echoer);
}

template <class M> struct Sender {
    M message;
    ros::Publisher publisher;
    std::vector<ros::Subscriber> subscribers;
    std::mutex lock;
    std::vector<uint64_t> sent;
    std::vector<int> echoers;
    std::vector<std::unordered_map<uint64_t, uint64_t>> received;
    std::vector<bool> warm;

    Sender(ros::NodeHandle& node, const Arguments& arguments, int number)
        : message(Contents<M>::filled(arguments.bytes)), echoers(arguments.others_of(number)),
          received(echoers.size()), warm(echoers.size()) {
        for (size_t index = 0; index < echoers.size(); index++) {
            boost::function<void(const boost::shared_ptr<M const>&)> callback =
                [this, index](const boost::shared_ptr<M const>& it) { receive(index, *it); };
            subscribers.push_back(node.subscribe<M>(back(arguments, number, echoers[index]), QUEUE, callback,
                                                    ros::VoidConstPtr(), arguments.hints()));
        }
        publisher = node.advertise<M>(out(arguments, number), QUEUE);
    }
    void receive(size_t index, const M& it) {
        uint64_t at = now_ns(), sequence = Contents<M>::read(it);
        std::lock_guard<std::mutex> held(lock);
        if (sequence == WARM_UP) warm[index] = true;
        else received[index].emplace(sequence, at);
    }
    bool is_warm() {
        std::lock_guard<std::mutex> held(lock);
        for (bool one : warm) if (!one) return false;
        return true;
    }
    bool is_complete() {
        std::lock_guard<std::mutex> held(lock);
        for (auto& echoes : received) if (echoes.size() < sent.size()) return false;
        return true;
    }
    uint64_t publish(uint64_t sequence) {
        Contents<M>::number(message, sequence);
        uint64_t at = now_ns();
        publisher.publish(message);
        return at;
    }
    void send_all(uint64_t due_ns, uint64_t end_ns, uint64_t period_ns) {
        while (due_ns < end_ns && now_ns() < end_ns) {
            if (now_ns() < due_ns) sleep_until(due_ns);
            sent.push_back(publish(sent.size()));
            due_ns += period_ns;
        }
    }
    void write(const std::string& file) {
        std::lock_guard<std::mutex> held(lock);
        std::ofstream output(file);
        output << "sequence,echoer,sent_ns,received_ns\n";
        for (size_t index = 0; index < echoers.size(); index++)
            for (uint64_t sequence = 0; sequence < sent.size(); sequence++) {
                auto it = received[index].find(sequence);
                uint64_t at = it == received[index].end() ? 0 : it->second;
                output << sequence << ',' << echoers[index] << ',' << sent[sequence] << ',' << at << '\n';
            }
    }
};

// Returns the words of the next line; ends the program at the end of the input.
static std::vector<std::string> await_words() {
    std::string line, word;
    if (!std::getline(std::cin, line)) _exit(0);
    std::istringstream words(line);
    std::vector<std::string> all;
    while (words >> word) all.push_back(word);
    return all;
}

template <class M> void run_senders(ros::NodeHandle& node, const Arguments& arguments) {
    std::vector<std::unique_ptr<Sender<M>>> senders;
    for (int number : arguments.numbers)
        senders.push_back(std::make_unique<Sender<M>>(node, arguments, number));
    say("ready");
    for (bool all = false; !all;) {
        all = true;
        for (auto& sender : senders)
            if (!sender->is_warm()) sender->publish(WARM_UP), all = false;
        if (!all) sleep_until(now_ns() + 100000000);
    }
    say("first");
    auto words = await_words();
    uint64_t first = now_ns() + std::stoull(words.at(1));
    uint64_t end = first + uint64_t(std::stod(words.at(2)) * 1e9), period = std::stoull(words.at(3));
    std::vector<std::thread> threads;
    for (auto& sender : senders)
        threads.emplace_back([&] { sender->send_all(first, end, period); });
    for (auto& thread : threads) thread.join();
    say("done");
    uint64_t give_up = now_ns() + uint64_t(std::stod(await_words().at(1)) * 1e9);
    for (bool all = false; !all && now_ns() < give_up;) {
        all = true;
        for (auto& sender : senders) all = all && sender->is_complete();
        if (!all) sleep_until(now_ns() + 20000000);
    }
    say("drained");
    for (size_t index = 0; index < senders.size(); index++)
        senders[index]->write(arguments.folder + "/sender-" + std::to_string(arguments.numbers[index]) + ".csv");
    say("written");
}

template <class M> void run(const std::string& role, ros::NodeHandle& node, const Arguments& arguments) {
    std::vector<ros::Publisher> publishers;
    std::vector<ros::Subscriber> subscribers;
    if (role == "sender") {
        run_senders<M>(node, arguments);
    } else {
        for (int number : arguments.numbers)
            for (int sender : arguments.others_of(number)) {
                ros::Publisher publisher = node.advertise<M>(back(arguments, sender, number), QUEUE);
                boost::function<void(const boost::shared_ptr<M const>&)> callback =
                    [publisher](const boost::shared_ptr<M const>& it) { publisher.publish(it); };
                subscribers.push_back(node.subscribe<M>(out(arguments, sender), QUEUE, callback,
                                                        ros::VoidConstPtr(), arguments.hints()));
            }
        say("ready");
    }
    std::string line;
    while (std::getline(std::cin, line)) {
    }
}

static std::vector<int> numbers_of(const std::string& text) {
    std::vector<int> numbers;
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) numbers.push_back(std::stoi(part));
    return numbers;
}

int main(int count, char** words) {
    if (count < 7) {
        std::cerr << "usage: echo ROLE NUMBERS OTHERS FOLDER KIND BYTES [nodelay]" << std::endl;
        return 2;
    }
    std::string role = words[1], kind = words[5];
    Arguments arguments{numbers_of(words[2]),
                        words[3] == std::string("own") ? std::vector<int>() : numbers_of(words[3]), words[4], kind,
                        size_t(std::stoul(words[6])), count > 7};
    int none = 0;
    ros::init(none, nullptr, role + "_" + std::to_string(arguments.numbers.at(0)),
              ros::init_options::NoSigintHandler | ros::init_options::NoRosout);
    ros::NodeHandle node;
    ros::AsyncSpinner spinner(1);
    spinner.start();
    if (kind == "text") run<std_msgs::String>(role, node, arguments);
    else if (kind == "scan") run<sensor_msgs::LaserScan>(role, node, arguments);
    else if (kind == "image") run<sensor_msgs::Image>(role, node, arguments);
    else {
        std::cerr << "the roscpp nodes have no messages of kind " << kind << std::endl;
        return 2;
    }
    spinner.stop();
    return 0;
}
