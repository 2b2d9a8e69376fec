// SPDX-License-Identifier: Apache-2.0
// roscpp with the arguments and commands of probe.py, whose description is there. Compiled by the
// study: g++ -O2 roscpp.cpp $(pkg-config --cflags --libs roscpp).
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <ros/ros.h>
#include <std_msgs/UInt8MultiArray.h>

namespace {

using Message = std_msgs::UInt8MultiArray;
const char* const TOPIC = "/stream";
const uint64_t WARM_UP = 999999999999;
const uint64_t BATCH = 1000000;
const int WARM_UP_PERIOD_MS = 50;

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

void sleep_until(uint64_t due_ns) {
  timespec due = {time_t(due_ns / 1000000000), long(due_ns % 1000000000)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, nullptr);
}

struct Sample {
  uint64_t sequence, sent_ns, received_ns;
};

class Sender {
 public:
  Sender(ros::NodeHandle& node, uint32_t queue, bool latched)
      : publisher_(node.advertise<Message>(TOPIC, queue, latched)) {}

  // A shared message, which roscpp does not copy for subscribers of the same process.
  void publish(uint64_t sequence, size_t size) {
    auto message = boost::make_shared<Message>();
    message->data.resize(size);
    uint64_t stamp[2] = {sequence, now_ns()};
    std::memcpy(message->data.data(), stamp, sizeof stamp);
    publisher_.publish(message);
    if (sequence != WARM_UP) sent_.push_back({sequence, stamp[1], 0});
  }

  uint64_t batch(uint64_t first, size_t size, uint64_t count, uint64_t period_us,
                 uint64_t start_ns, double limit_s) {
    uint64_t give_up = start_ns + count * period_us * 1000 + uint64_t(limit_s * 1e9);
    for (uint64_t index = 0; index < count; ++index) {
      sleep_until(start_ns + index * period_us * 1000);
      if (now_ns() > give_up) return index;
      publish(first + index, size);
    }
    return count;
  }

  void write(const std::string& prefix) const {
    std::ofstream file(prefix + ".sent.csv");
    file << "sequence,sent_ns\n";
    for (const Sample& it : sent_) file << it.sequence << ',' << it.sent_ns << '\n';
  }

 private:
  ros::Publisher publisher_;
  std::vector<Sample> sent_;
};

class Receiver {
 public:
  explicit Receiver(ros::NodeHandle& node)
      : subscriber_(node.subscribe(TOPIC, 1000, &Receiver::receive, this)) {}

  uint64_t wait(uint64_t first, uint64_t count, double patience_s) {
    uint64_t patience_ns = uint64_t(patience_s * 1e9), begin_ns = now_ns();
    std::set<uint64_t> seen;
    size_t at = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      for (; at < samples_.size(); ++at) {
        uint64_t sequence = samples_[at].sequence;
        if (first <= sequence && sequence < first + BATCH) seen.insert(sequence);
      }
      uint64_t idle_ns = now_ns() - std::max(last_ns_, begin_ns);
      if (seen.size() >= count || idle_ns >= patience_ns) return seen.size();
      news_.wait_for(lock, std::chrono::nanoseconds(patience_ns - idle_ns));
    }
  }

  void write(const std::string& prefix) {
    std::lock_guard<std::mutex> lock(mutex_);
    std::ofstream file(prefix + ".received.csv");
    file << "sequence,sent_ns,received_ns\n";
    for (const Sample& it : samples_)
      file << it.sequence << ',' << it.sent_ns << ',' << it.received_ns << '\n';
  }

 private:
  void receive(const Message::ConstPtr& message) {
    uint64_t received_ns = now_ns(), stamp[2];
    std::memcpy(stamp, message->data.data(), sizeof stamp);
    std::lock_guard<std::mutex> lock(mutex_);
    if (stamp[0] == WARM_UP) {
      if (!warm_) std::cout << "first" << std::endl;
      warm_ = true;
      return;
    }
    samples_.push_back({stamp[0], stamp[1], received_ns});
    last_ns_ = received_ns;
    news_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable news_;
  std::vector<Sample> samples_;
  uint64_t last_ns_ = 0;
  bool warm_ = false;
  ros::Subscriber subscriber_;
};

struct Arguments {
  std::string role, prefix;
  bool warm = false, latched = false;
  uint32_t queue = 10;
};

Arguments parse(int count, char** words) {
  Arguments arguments;
  if (count < 4) throw std::runtime_error("usage: roscpp ROLE PREFIX [options of probe.py]");
  arguments.role = words[2];
  arguments.prefix = words[3];
  for (int index = 4; index < count; ++index) {
    std::string word = words[index];
    if (word == "--warm") arguments.warm = true;
    else if (word == "--transient-local") arguments.latched = true;
    else if (word.rfind("--depth=", 0) == 0) arguments.queue = std::stoul(word.substr(8));
    else throw std::runtime_error("'" + word + "' is no option of roscpp");
  }
  return arguments;
}

void obey(const std::string& line, Sender* sender, Receiver* receiver, const std::string& prefix) {
  std::istringstream words(line);
  std::string verb;
  uint64_t first = 0, size = 0, count = 0, period_us = 0, start_ns = 0;
  double limit_s = 0;
  words >> verb;
  if (verb == "batch" && sender) {
    words >> first >> size >> count >> period_us >> start_ns >> limit_s;
    std::cout << "batch-done "
              << sender->batch(first, size, count, period_us, start_ns, limit_s) << std::endl;
  } else if (verb == "await" && receiver) {
    words >> first >> count >> limit_s;
    std::cout << "received " << receiver->wait(first, count, limit_s) << " 0" << std::endl;
  } else if (verb == "write") {
    if (sender) sender->write(prefix);
    if (receiver) receiver->write(prefix);
    std::cout << "written" << std::endl;
  } else {
    throw std::runtime_error("'" + line + "' is no command of this role");
  }
}

void warm_up(Sender& sender) {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  while (poll(&input, 1, WARM_UP_PERIOD_MS) == 0) sender.publish(WARM_UP, 256);
}

int run(int count, char** words) {
  int none = 0;
  ros::init(none, nullptr, "probe", ros::init_options::AnonymousName |
            ros::init_options::NoSigintHandler | ros::init_options::NoRosout);
  Arguments arguments = parse(count, words);
  ros::NodeHandle node;
  std::unique_ptr<Receiver> receiver;
  std::unique_ptr<Sender> sender;
  if (arguments.role != "publish") receiver.reset(new Receiver(node));
  if (arguments.role != "subscribe")
    sender.reset(new Sender(node, arguments.queue, arguments.latched));
  ros::AsyncSpinner spinner(1);
  // The spinner starts after this line, since a callback prints `first`, which must follow `ready`.
  std::cout << "ready " << now_ns() << std::endl;
  spinner.start();
  if (arguments.warm && sender) warm_up(*sender);
  for (std::string line; std::getline(std::cin, line);)
    obey(line, sender.get(), receiver.get(), arguments.prefix);
  std::cout.flush();
  _exit(0);
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(count, words);
  } catch (const std::exception& error) {
    std::cerr << "roscpp: " << error.what() << std::endl;
    return 1;
  }
}
