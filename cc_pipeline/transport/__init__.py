"""Verified byte ranges of a source: retries by kind of fault, one request budget per machine."""

from cc_pipeline.transport.client import Transport
from cc_pipeline.transport.faults import FaultKind, RangeFault
from cc_pipeline.transport.ranges import ByteRange, ObjectInfo, RangeBytes, RetryPolicy, TransportStats

__all__ = [
    "ByteRange",
    "FaultKind",
    "ObjectInfo",
    "RangeBytes",
    "RangeFault",
    "RetryPolicy",
    "Transport",
    "TransportStats",
]
