"""Reads a topic with Sentry's Arroyo and writes what it measured as JSON."""

import json
import resource
import signal
import struct
import sys
import time
from importlib.metadata import version

from arroyo import Topic
from arroyo.backends.kafka import KafkaConsumer, build_kafka_consumer_configuration
from arroyo.commit import ONCE_PER_SECOND
from arroyo.processing import StreamProcessor
from arroyo.processing.strategies import CommitOffsets, ProcessingStrategyFactory, RunTask

signal.alarm(150)  # seconds; also if the parent is killed
address, topic, group, want, variant = sys.argv[1:]
want = int(want)
tuning = {}
if variant == "tuned":
    tuning = {
        "queued_min_messages": 100_000,
        "override_params": {"fetch.queue.backoff.ms": 10},
    }
decode = struct.Struct(">Q").unpack_from


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


records = total = 0
first = last = last_cpu = None


def add(message):
    global records, total, first, last, last_cpu
    if first is None:
        first = time.monotonic()
    records += 1
    total += decode(message.payload.value)[0]
    if records == want:
        last, last_cpu = time.monotonic(), cpu()
        processor.signal_shutdown()


class Factory(ProcessingStrategyFactory):
    def create_with_partitions(self, commit, partitions):
        return RunTask(add, CommitOffsets(commit))


began, began_cpu = time.monotonic(), cpu()
processor = StreamProcessor(
    consumer=KafkaConsumer(
        build_kafka_consumer_configuration(
            {"bootstrap.servers": address},
            group,
            auto_offset_reset="earliest",
            **tuning,
        )
    ),
    topic=Topic(topic),
    processor_factory=Factory(),
    commit_policy=ONCE_PER_SECOND,
)
processor.run()
print(
    json.dumps(
        {
            "records": records,
            "sum": total,
            "seconds": last - began,
            "first_seconds": first - began,
            "cpu_seconds": last_cpu - began_cpu,
            "version": version("sentry-arroyo"),
        }
    )
)
