"""Tidewheel: produce and consume with tags and delays, on Tidewheel or any Kafka brokers.

async with Client.from_env() as client:
    await client.topic("orders").send("hello", key="k")
    async for message in client.subscribe("orders", group="pay"):
        print(message.value)
"""

from tidewheel.admin import Admin, PartitionLag, RetryPause
from tidewheel.app import App
from tidewheel.client import Client
from tidewheel.consumer import Consumer
from tidewheel.delayed import CalendarEntry, CancelOutcome, CancelSummary, DelayedMessages
from tidewheel.errors import TidewheelError
from tidewheel.headers import DELAY_LEVELS
from tidewheel.interceptors import ConsumerInterceptor, ProducerInterceptor
from tidewheel.message import Message, ProducerRecord, Receipt, TopicPartition
from tidewheel.nacks import DeadLetter, RetryLater
from tidewheel.producer import SendSummary, Topic
from tidewheel.retry_policy import Delays, Exponential, Fixed, Linear, RetryPolicy
from tidewheel.sender import Delivery
from tidewheel.serialization import from_json, from_text, to_json
from tidewheel.settings import ClientSettings, ConsumerSettings, ProducerSettings
from tidewheel.subscriber_options import RetryInPlace
from tidewheel.subscriptions import Subscription
from tidewheel.transport.port import PendingMessage

__all__ = [
    "DELAY_LEVELS",
    "Admin",
    "App",
    "CalendarEntry",
    "CancelOutcome",
    "CancelSummary",
    "Client",
    "ClientSettings",
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerSettings",
    "DeadLetter",
    "DelayedMessages",
    "Delays",
    "Delivery",
    "Exponential",
    "Fixed",
    "Linear",
    "Message",
    "PartitionLag",
    "PendingMessage",
    "ProducerInterceptor",
    "ProducerRecord",
    "ProducerSettings",
    "Receipt",
    "RetryInPlace",
    "RetryLater",
    "RetryPause",
    "RetryPolicy",
    "SendSummary",
    "Subscription",
    "TidewheelError",
    "Topic",
    "TopicPartition",
    "from_json",
    "from_text",
    "to_json",
]
