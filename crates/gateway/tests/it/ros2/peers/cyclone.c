// SPDX-License-Identifier: Apache-2.0
// A program on Debian's Cyclone DDS that follows orders, as ../agent.py: one JSON order per line in,
// one JSON report per line out. Like ROS 2 before Iron it announces no type hashes.
//
// It ends when its input does, so that none outlives the test that started it.

#include <dds/dds.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ros.h"

#define MAX_ENDPOINTS 64
#define MAX_NAME 256
#define MAX_LINE 1024
#define GRAPH "ros_discovery_info"

typedef rmw_dds_common_msg_dds__ParticipantEntitiesInfo_ Graph;
typedef rmw_dds_common_msg_dds__NodeEntitiesInfo_ Node;

static struct endpoint {
  char topic[MAX_NAME];
  dds_entity_t entity;
} writers[MAX_ENDPOINTS], readers[MAX_ENDPOINTS];

static dds_entity_t participant, graph_reader;

// The next functions find values in an order by their keys. They read only what the tests write.

static const char *value(const char *order, const char *key) {
  char quoted[MAX_NAME];
  snprintf(quoted, sizeof quoted, "\"%s\":", key);
  const char *at = strstr(order, quoted);
  return at ? at + strlen(quoted) : NULL;
}

static void text(const char *order, const char *key, char *to) {
  const char *at = value(order, key);
  *to = 0;
  if (at) sscanf(at, "\"%255[^\"]\"", to);
}

static long number(const char *order, const char *key, long otherwise) {
  const char *at = value(order, key);
  return at ? atol(at) : otherwise;
}

static bool flag(const char *order, const char *key) {
  const char *at = value(order, key);
  return at && strncmp(at, "true", 4) == 0;
}

static dds_entity_t sound(dds_entity_t entity, const char *what) {
  if (entity < 0) {
    fprintf(stderr, "%s: %s\n", what, dds_strretcode(entity));
    exit(1);
  }
  return entity;
}

static dds_qos_t *profile(const char *order) {
  const int depth = (int)number(order, "depth", 10);
  const dds_data_representation_id_t cdr = DDS_DATA_REPRESENTATION_XCDR1;
  dds_qos_t *qos = dds_create_qos();
  dds_qset_data_representation(qos, 1, &cdr);
  dds_qset_history(qos, DDS_HISTORY_KEEP_LAST, depth);
  dds_qset_reliability(
      qos, flag(order, "best_effort") ? DDS_RELIABILITY_BEST_EFFORT : DDS_RELIABILITY_RELIABLE,
      DDS_SECS(10));
  if (flag(order, "latch")) {
    dds_qset_durability(qos, DDS_DURABILITY_TRANSIENT_LOCAL);
    // In Cyclone DDS, this policy keeps the messages for late joiners.
    dds_qset_durability_service(qos, 0, DDS_HISTORY_KEEP_LAST, depth, -1, -1, -1);
  }
  return qos;
}

static dds_entity_t topic_of(const char *topic, const dds_topic_descriptor_t *type) {
  char name[MAX_NAME + 2];
  snprintf(name, sizeof name, "rt%s", topic);
  return sound(dds_create_topic(participant, type, name, NULL, NULL), name);
}

static struct endpoint *find(struct endpoint *all, const char *topic) {
  for (int i = 0; i < MAX_ENDPOINTS; i++)
    if (strcmp(all[i].topic, topic) == 0) return &all[i];
  fprintf(stderr, "no endpoint '%s'\n", topic);
  exit(1);
}

static void enter(struct endpoint *all, const char *topic, dds_entity_t entity) {
  struct endpoint *free_place = find(all, "");
  strcpy(free_place->topic, topic);
  free_place->entity = sound(entity, topic);
}

static void take_away(struct endpoint *all, const char *topic) {
  struct endpoint *gone = find(all, topic);
  dds_delete(gone->entity);
  *gone->topic = 0;
}

static char nth(size_t i) { return (char)('a' + i % 23); }

static void send_text(const char *topic, size_t size) {
  std_msgs_msg_dds__String_ message = {malloc(size + 1)};
  for (size_t i = 0; i < size; i++) message.data[i] = nth(i);
  message.data[size] = 0;
  sound(dds_write(find(writers, topic)->entity, &message), "write");
  free(message.data);
}

static void take_texts(const struct endpoint *from) {
  void *messages[1] = {NULL};
  dds_sample_info_t info;
  while (dds_take(from->entity, messages, &info, 1, 1) > 0) {
    if (info.valid_data) {
      const char *data = ((std_msgs_msg_dds__String_ *)messages[0])->data;
      size_t size = 0;
      while (data[size] && data[size] == nth(size)) size++;
      printf("{\"got\": \"%s\", \"size\": %zu, \"sound\": %s}\n", from->topic, strlen(data),
             data[size] ? "false" : "true");
    }
    dds_return_loan(from->entity, messages, 1);
  }
}

// Joins the graph as a process of ROS 2 before Iron does.
static void join_graph(void) {
  const dds_topic_descriptor_t *type = &rmw_dds_common_msg_dds__ParticipantEntitiesInfo__desc;
  dds_qos_t *qos = profile("\"latch\":true,\"depth\":1");
  dds_entity_t topic =
      sound(dds_create_topic(participant, type, GRAPH, NULL, NULL), GRAPH);
  dds_entity_t writer = sound(dds_create_writer(participant, topic, qos, NULL), "graph's writer");
  graph_reader = sound(dds_create_reader(participant, topic, qos, NULL), "graph's reader");
  dds_delete_qos(qos);
  dds_guid_t guid;
  dds_get_guid(participant, &guid);
  Node node = {"/", "old", {0}, {0}};
  Graph message = {.node_entities_info_seq = {1, 1, &node, false}};
  memcpy(message.gid.data, guid.v, sizeof guid.v);
  sound(dds_write(writer, &message), "graph's message");
}

// Reports nodes, which can be read only if GUIDs have 24 bytes.
static void take_graph(void) {
  void *messages[1] = {NULL};
  dds_sample_info_t info;
  while (graph_reader && dds_take(graph_reader, messages, &info, 1, 1) > 0) {
    const Graph *graph = messages[0];
    for (uint32_t i = 0; info.valid_data && i < graph->node_entities_info_seq._length; i++) {
      const Node *node = &graph->node_entities_info_seq._buffer[i];
      printf("{\"node\": \"%s\", \"namespace\": \"%s\", \"writers\": %u}\n", node->node_name,
             node->node_namespace, node->writer_gid_seq._length);
    }
    dds_return_loan(graph_reader, messages, 1);
  }
}

static void many(const char *prefix, long count) {
  dds_qos_t *qos = profile("");
  for (long i = 0; i < count; i++) {
    char topic[MAX_NAME];
    snprintf(topic, sizeof topic, "%.200s%ld", prefix, i);
    dds_entity_t entity = topic_of(topic, &std_msgs_msg_dds__String__desc);
    sound(dds_create_writer(participant, entity, qos, NULL), topic);
  }
  dds_delete_qos(qos);
}

// Creates a writer of a type that has a key or another name.
static void odd(const char *topic, const char *kind) {
  const dds_topic_descriptor_t *text = &std_msgs_msg_dds__String__desc;
  const bool unsound = strcmp(kind, "unsound") == 0;
  const dds_topic_descriptor_t renamed = {
      .m_size = text->m_size,
      .m_align = text->m_align,
      .m_flagset = text->m_flagset & ~DDS_TOPIC_XTYPES_METADATA,
      // Invalid UTF-8.
      .m_typename = unsound ? "std_msgs::msg::dds_::S\xff\xfe_" : "foreign_msgs::msg::dds_::New_",
      .m_nops = text->m_nops,
      .m_ops = text->m_ops,
      .m_meta = text->m_meta,
  };
  const bool keyed = strcmp(kind, "keyed") == 0;
  dds_entity_t name = topic_of(topic, keyed ? &odd_msgs_msg_dds__Keyed__desc : &renamed);
  enter(writers, topic, dds_create_writer(participant, name, NULL, NULL));
}

static void carry_out(const char *order) {
  char what[MAX_NAME], topic[MAX_NAME], kind[MAX_NAME];
  text(order, "do", what);
  text(order, "topic", topic);
  text(order, "kind", kind);
  dds_qos_t *qos = profile(order);
  const dds_topic_descriptor_t *type = &std_msgs_msg_dds__String__desc;
  if (strcmp(what, "advertise") == 0)
    enter(writers, topic, dds_create_writer(participant, topic_of(topic, type), qos, NULL));
  else if (strcmp(what, "subscribe") == 0)
    enter(readers, topic, dds_create_reader(participant, topic_of(topic, type), qos, NULL));
  else if (strcmp(what, "unadvertise") == 0)
    take_away(writers, topic);
  else if (strcmp(what, "unsubscribe") == 0)
    take_away(readers, topic);
  else if (strcmp(what, "send_large") == 0)
    send_text(topic, (size_t)number(order, "size", 0));
  else if (strcmp(what, "join_graph") == 0)
    join_graph();
  else if (strcmp(what, "many") == 0)
    many(topic, number(order, "count", 0));
  else if (strcmp(what, "odd") == 0)
    odd(topic, kind);
  else if (strcmp(what, "leave") == 0)
    dds_delete(participant);
  dds_delete_qos(qos);
  printf("{\"did\": \"%s\"}\n", what);
  if (strcmp(what, "leave") == 0) exit(0);
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  const char *domain = getenv("ROS_DOMAIN_ID");
  participant =
      sound(dds_create_participant(domain ? (dds_domainid_t)atoi(domain) : 0, NULL, NULL), "domain");
  printf("{\"did\": \"start\"}\n");
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  char line[MAX_LINE];
  for (;;) {
    // One order at a time; the tests wait for its report.
    if (poll(&input, 1, 10) > 0) {
      if (!fgets(line, sizeof line, stdin)) _exit(0);
      carry_out(line);
    }
    for (int i = 0; i < MAX_ENDPOINTS; i++)
      if (*readers[i].topic) take_texts(&readers[i]);
    take_graph();
  }
}
