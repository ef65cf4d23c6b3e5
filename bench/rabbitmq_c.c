/* The same messages with rabbitmq-c: one connection, a window of publisher confirms.
 *
 *   cc -O2 -o rabbitmq_c rabbitmq_c.c -lrabbitmq
 *   rabbitmq_c HOST PORT USER PASSWORD VHOST EXCHANGE MESSAGES BODY_BYTES WINDOW
 *
 * It prints the seconds and the CPU seconds from the first publish to the last confirm. */
#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static void must(int ok, const char *what) {
  if (!ok) {
    fprintf(stderr, "rabbitmq-c: %s failed\n", what);
    exit(1);
  }
}

static double wall(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec / 1e9;
}

static double cpu(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* Reads one answer of the broker and returns how many messages it is for. */
static uint64_t answers(amqp_connection_state_t c, uint64_t *low, unsigned char *seen) {
  amqp_frame_t frame;
  must(amqp_simple_wait_frame(c, &frame) == AMQP_STATUS_OK, "reading a confirm");
  must(frame.frame_type == AMQP_FRAME_METHOD && frame.payload.method.id == AMQP_BASIC_ACK_METHOD, "getting an ack");
  amqp_basic_ack_t *ack = frame.payload.method.decoded;
  uint64_t count = 0, first = ack->multiple ? *low + 1 : ack->delivery_tag;
  for (uint64_t tag = first; tag <= ack->delivery_tag; tag++) {
    count += !seen[tag];
    seen[tag] = 1;
  }
  while (seen[*low + 1]) ++*low;
  amqp_maybe_release_buffers(c);
  return count;
}

int main(int argc, char **argv) {
  must(argc == 10, "reading the arguments");
  uint64_t messages = strtoull(argv[7], NULL, 10), window = strtoull(argv[9], NULL, 10);
  amqp_bytes_t body = {strtoull(argv[8], NULL, 10), NULL};
  body.bytes = malloc(body.len);
  memset(body.bytes, 'x', body.len);
  unsigned char *seen = calloc(messages + 2, 1);

  amqp_connection_state_t c = amqp_new_connection();
  must(amqp_socket_open(amqp_tcp_socket_new(c), argv[1], atoi(argv[2])) == AMQP_STATUS_OK, "connecting");
  amqp_rpc_reply_t login = amqp_login(c, argv[5], 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, argv[3], argv[4]);
  must(login.reply_type == AMQP_RESPONSE_NORMAL, "logging in");
  amqp_channel_open(c, 1);
  amqp_confirm_select(c, 1);
  must(amqp_get_rpc_reply(c).reply_type == AMQP_RESPONSE_NORMAL, "opening a confirming channel");

  amqp_basic_properties_t persistent = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG, .delivery_mode = 2};
  amqp_bytes_t exchange = amqp_cstring_bytes(argv[6]);
  char key[32];
  uint64_t low = 0, open = 0; /* every tag up to `low` is answered */
  double started = wall(), used = cpu();
  for (uint64_t i = 0; i < messages; i++) {
    snprintf(key, sizeof key, "order-%08llu", (unsigned long long)i);
    must(amqp_basic_publish(c, 1, exchange, amqp_cstring_bytes(key), 1, 0, &persistent, body) == AMQP_STATUS_OK,
         "publishing");
    for (open++; open >= window;) open -= answers(c, &low, seen);
  }
  while (open) open -= answers(c, &low, seen);
  printf("%.6f %.6f\n", wall() - started, cpu() - used);
  amqp_connection_close(c, AMQP_REPLY_SUCCESS);
  amqp_destroy_connection(c);
  return 0;
}
