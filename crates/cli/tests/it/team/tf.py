# SPDX-License-Identifier: Apache-2.0
"""A program of Cyclone DDS that reads tf as ROS 2 has it: one JSON line per message. No
package of ROS 2 that installs here has tf2_msgs."""
import json
import sys
import time
from dataclasses import dataclass

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.types import float64, int32, sequence, uint32
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration


@dataclass
class Time(IdlStruct, typename="builtin_interfaces::msg::dds_::Time_"):
    sec: int32
    nanosec: uint32


@dataclass
class Header(IdlStruct, typename="std_msgs::msg::dds_::Header_"):
    stamp: Time
    frame_id: str


@dataclass
class Vector3(IdlStruct, typename="geometry_msgs::msg::dds_::Vector3_"):
    x: float64
    y: float64
    z: float64


@dataclass
class Quaternion(IdlStruct, typename="geometry_msgs::msg::dds_::Quaternion_"):
    x: float64
    y: float64
    z: float64
    w: float64


@dataclass
class Transform(IdlStruct, typename="geometry_msgs::msg::dds_::Transform_"):
    translation: Vector3
    rotation: Quaternion


@dataclass
class TransformStamped(IdlStruct, typename="geometry_msgs::msg::dds_::TransformStamped_"):
    header: Header
    child_frame_id: str
    transform: Transform


@dataclass
class TFMessage(IdlStruct, typename="tf2_msgs::msg::dds_::TFMessage_"):
    transforms: sequence[TransformStamped]


qos = Qos(
    Policy.DataRepresentation(use_cdrv0_representation=True),
    Policy.Reliability.Reliable(duration(seconds=1)),
    Policy.Durability.TransientLocal,
    Policy.History.KeepLast(100),
)
participant = DomainParticipant(0)
reader = DataReader(participant, Topic(participant, "rt" + sys.argv[1], TFMessage, qos=qos), qos=qos)
deadline = time.time() + float(sys.argv[2])
while time.time() < deadline:
    # A writer that ends is a sample without data.
    for message in (it for it in reader.take(10) if isinstance(it, TFMessage)):
        frames = [
            [it.header.frame_id, it.child_frame_id, it.header.stamp.sec, it.transform.translation.x]
            for it in message.transforms
        ]
        print(json.dumps(frames), flush=True)
        if len(frames) == int(sys.argv[3]):
            sys.exit(0)
    time.sleep(0.02)
sys.exit(f"no message of {sys.argv[3]} transforms in {sys.argv[2]} s")
