// SPDX-License-Identifier: Apache-2.0
// A program on Debian's Fast DDS that follows orders, as ../agent.py: one JSON order per line in, one
// JSON report per line out. It configures Fast DDS as rmw_fastrtps of Humble does, and also
// announces no type hashes.
//
// It ends when its input does, so that none outlives the test that started it.

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <fastdds/dds/topic/TypeSupport.hpp>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>
#include <iostream>
#include <map>
#include <string>

using namespace eprosima::fastdds::dds;
using eprosima::fastdds::rtps::UDPv4TransportDescriptor;
using eprosima::fastrtps::rtps::SerializedPayload_t;

namespace {

constexpr uint32_t ENCAPSULATION = 4, LENGTH = 4, LARGEST = 5'000'000;

// std_msgs/msg/String, little-endian.
class Text : public TopicDataType {
 public:
  Text() {
    setName("std_msgs::msg::dds_::String_");
    m_typeSize = LARGEST;
    m_isGetKeyDefined = false;
    auto_fill_type_object(false);
    auto_fill_type_information(false);
  }
  bool serialize(void *data, SerializedPayload_t *payload) override {
    const auto &text = *static_cast<std::string *>(data);
    const uint32_t length = static_cast<uint32_t>(text.size()) + 1;
    const char header[ENCAPSULATION] = {0, 1, 0, 0};
    memcpy(payload->data, header, ENCAPSULATION);
    memcpy(payload->data + ENCAPSULATION, &length, LENGTH);
    memcpy(payload->data + ENCAPSULATION + LENGTH, text.c_str(), length);
    payload->encapsulation = CDR_LE;
    payload->length = ENCAPSULATION + LENGTH + length;
    return true;
  }
  bool deserialize(SerializedPayload_t *payload, void *data) override {
    uint32_t length = 0;
    if (payload->length < ENCAPSULATION + LENGTH) return false;
    memcpy(&length, payload->data + ENCAPSULATION, LENGTH);
    if (length == 0 || length > payload->length - ENCAPSULATION - LENGTH) return false;
    const char *text = reinterpret_cast<char *>(payload->data) + ENCAPSULATION + LENGTH;
    static_cast<std::string *>(data)->assign(text, length - 1);
    return true;
  }
  std::function<uint32_t()> getSerializedSizeProvider(void *data) override {
    const auto size = static_cast<uint32_t>(static_cast<std::string *>(data)->size());
    return [size] { return ENCAPSULATION + LENGTH + size + 1; };
  }
  void *createData() override { return new std::string; }
  void deleteData(void *data) override { delete static_cast<std::string *>(data); }
  bool getKey(void *, eprosima::fastrtps::rtps::InstanceHandle_t *, bool) override { return false; }
};

DomainParticipant *participant;
Publisher *publisher;
Subscriber *subscriber;
std::map<std::string, DataWriter *> writers;
std::map<std::string, DataReader *> readers;

// Returns what follows a key in an order. It reads only what the tests write.
std::string value(const std::string &order, const std::string &key) {
  const auto quoted = "\"" + key + "\":";
  const auto at = order.find(quoted);
  return at == std::string::npos ? "" : order.substr(at + quoted.size());
}

std::string text_of(const std::string &order, const std::string &key) {
  const auto from = value(order, key);
  return from.empty() ? "" : from.substr(1, from.find('"', 1) - 1);
}

bool flag(const std::string &order, const std::string &key) {
  return value(order, key).rfind("true", 0) == 0;
}

std::string letters(size_t size) {
  std::string text(size, ' ');
  for (size_t i = 0; i < size; i++) text[i] = static_cast<char>('a' + i % 23);
  return text;
}

template <typename Qos>
Qos profile(Qos qos, const std::string &order) {
  const auto depth = value(order, "depth");
  qos.history().kind = KEEP_LAST_HISTORY_QOS;
  qos.history().depth = depth.empty() ? 10 : std::stoi(depth);
  qos.reliability().kind =
      flag(order, "best_effort") ? BEST_EFFORT_RELIABILITY_QOS : RELIABLE_RELIABILITY_QOS;
  qos.durability().kind =
      flag(order, "latch") ? TRANSIENT_LOCAL_DURABILITY_QOS : VOLATILE_DURABILITY_QOS;
  qos.endpoint().history_memory_policy =
      eprosima::fastrtps::rtps::PREALLOCATED_WITH_REALLOC_MEMORY_MODE;
  qos.data_sharing().off();
  return qos;
}

template <typename T>
T *sound(T *made, const std::string &what) {
  if (made) return made;
  std::cerr << what << ": refused" << std::endl;
  std::exit(1);
}

Topic *topic_of(const std::string &name) {
  const auto known = participant->lookup_topicdescription("rt" + name);
  if (known) return static_cast<Topic *>(known);
  const std::string type = Text().getName();
  return sound(participant->create_topic("rt" + name, type, TOPIC_QOS_DEFAULT), name);
}

void advertise(const std::string &topic, const std::string &order) {
  auto qos = profile(DATAWRITER_QOS_DEFAULT, order);
  // Without this, the writer sends nothing larger than a datagram.
  qos.publish_mode().kind = ASYNCHRONOUS_PUBLISH_MODE;
  writers[topic] = sound(publisher->create_datawriter(topic_of(topic), qos), topic);
}

void subscribe(const std::string &topic, const std::string &order) {
  const auto qos = profile(DATAREADER_QOS_DEFAULT, order);
  readers[topic] = sound(subscriber->create_datareader(topic_of(topic), qos), topic);
}

void join() {
  DomainParticipantQos qos;
  auto transport = std::make_shared<UDPv4TransportDescriptor>();
  const char *only = std::getenv("ROS_LOCALHOST_ONLY");
  if (only && strcmp(only, "1") == 0) transport->interfaceWhiteList.emplace_back("127.0.0.1");
  qos.transport().use_builtin_transports = false;
  qos.transport().user_transports.push_back(transport);
  const char *domain = std::getenv("ROS_DOMAIN_ID");
  auto factory = DomainParticipantFactory::get_instance();
  participant = sound(factory->create_participant(domain ? std::atoi(domain) : 0, qos), "domain");
  TypeSupport(new Text).register_type(participant);
  publisher = sound(participant->create_publisher(PUBLISHER_QOS_DEFAULT), "publisher");
  subscriber = sound(participant->create_subscriber(SUBSCRIBER_QOS_DEFAULT), "subscriber");
}

void leave() {
  participant->delete_contained_entities();
  DomainParticipantFactory::get_instance()->delete_participant(participant);
}

void carry_out(const std::string &order) {
  const auto what = text_of(order, "do"), topic = text_of(order, "topic");
  if (what == "advertise") advertise(topic, order);
  if (what == "subscribe") subscribe(topic, order);
  if (what == "unadvertise") publisher->delete_datawriter(writers[topic]), writers.erase(topic);
  if (what == "unsubscribe") subscriber->delete_datareader(readers[topic]), readers.erase(topic);
  if (what == "send_large") {
    auto message = letters(std::stoul(value(order, "size")));
    writers.at(topic)->write(&message);
  }
  if (what == "leave") leave();
  std::cout << "{\"did\": \"" << what << "\"}" << std::endl;
  if (what == "leave") _exit(0);
}

void take(const std::string &topic, DataReader *reader) {
  std::string text;
  SampleInfo info;
  while (reader->take_next_sample(&text, &info) == ReturnCode_t::RETCODE_OK) {
    if (!info.valid_data) continue;
    const bool whole = text == letters(text.size());
    std::cout << "{\"got\": \"" << topic << "\", \"size\": " << text.size()
              << ", \"sound\": " << (whole ? "true" : "false") << "}" << std::endl;
  }
}

}  // namespace

int main() {
  join();
  std::cout << "{\"did\": \"start\"}" << std::endl;
  pollfd input{STDIN_FILENO, POLLIN, 0};
  for (std::string order;;) {
    // One order at a time; the tests wait for its report.
    if (poll(&input, 1, 10) > 0) {
      if (!std::getline(std::cin, order)) _exit(0);
      carry_out(order);
    }
    for (const auto &[topic, reader] : readers) take(topic, reader);
  }
}
