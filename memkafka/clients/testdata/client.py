"""Produces records, reads them in a group, commits, and prints the values that it has read."""

import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer

addr, topic, group, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])


def delivered(err, _):
    if err is not None:
        raise KafkaException(err)


producer = Producer({"bootstrap.servers": addr, "enable.idempotence": True})
for i in range(count):
    producer.produce(topic, value=f"value-{i:02}", partition=i % 3, on_delivery=delivered)
if producer.flush(30) != 0:
    sys.exit("records were not delivered within 30 s")

consumer = Consumer({
    "bootstrap.servers": addr,
    "group.id": group,
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "heartbeat.interval.ms": 100,
})
consumer.subscribe([topic])
deadline = time.monotonic() + 60
values = []
while len(values) < count:
    if time.monotonic() > deadline:
        sys.exit(f"read {len(values)} records of {count} within 60 s")
    message = consumer.poll(1)
    if message is None:
        continue
    if message.error():
        raise KafkaException(message.error())
    values.append(message.value().decode())
    consumer.commit(message=message, asynchronous=False)
consumer.close()
print("\n".join(values))
