// SPDX-License-Identifier: Apache-2.0
//! Types of messages that report what a robot senses or where it is. No common node acts on them
//! under another robot's name. Only these types are published without a line in the configuration
//! file, and only under a prefix.

use crate::types::Dialect;
use crate::types::definition::short_name;
use crate::types::translate::dialect_of;

/// Name, md5 (ROS 1) and RIHS01 (ROS 2) of each. The name alone does not suffice: a ROS 1
/// subscriber accepts a topic by its md5.
#[rustfmt::skip]
pub const OBSERVATIONS: &[(&str, &str, &str)] = &[
    ("sensor_msgs/LaserScan",           "90c7ef2dc6895d81024acba2ac42f369", "64c191398013af96509d518dac71d5164f9382553fce5c1f8cca5be7924bd828"),
    ("sensor_msgs/Image",               "060021388200f6f0f447d0fcd9c64743", "d31d41a9a4c4bc8eae9be757b0beed306564f7526c88ea6a4588fb9582527d47"),
    ("sensor_msgs/CompressedImage",     "8f7a12909da2c9d3332d540a0977563f", "15640771531571185e2efc8a100baf923961a4d15d5569652e6cb6691e8e371a"),
    ("sensor_msgs/CameraInfo",          "c9a58c1b0b154e0e6da7578cb991d214", "b3dfd68ff46c9d56c80fd3bd4ed22c7a4ddce8c8348f2f59c299e73118e7e275"),
    ("sensor_msgs/PointCloud2",         "1158d486dd51d683ce2f1be655c3c181", "9198cabf7da3796ae6fe19c4cb3bdd3525492988c70522628af5daa124bae2b5"),
    ("sensor_msgs/PointCloud",          "d8e9c3f5afbdd8a130fd1d2763945fca", "614593df71d3c2b9bd4604a71b750fd218f0d65c045ea988b713719455a65b3b"),
    ("sensor_msgs/Imu",                 "6a62c6daae103f4ff57a132d6f95cec2", "7d9a00ff131080897a5ec7e26e315954b8eae3353c3f995c55faf71574000b5b"),
    ("sensor_msgs/MagneticField",       "2f3b0b43eed0c9501de0fa3ff89a45aa", "e80f32f56a20486c9923008fc1a1db07bbb273cbbf6a5b3bfa00835ee00e4dff"),
    ("sensor_msgs/NavSatFix",           "2d3a8cd499b9b4a0249fb98fd05cfa48", "62223ab3fe210a15976021da7afddc9e200dc9ec75231c1b6a557fc598a65404"),
    ("sensor_msgs/Range",               "c005c34273dc426c67a020a87bc24148", "b42b62562e93cbfe9d42b82fe5994dfa3d63d7d5c90a317981703f7388adff3a"),
    ("sensor_msgs/BatteryState",        "4ddae7f048e32fda22cac764685e3974", "4bee5dfce981c98faa6828b868307a0a73f992ed0789f374ee96c8f840e69741"),
    ("sensor_msgs/FluidPressure",       "804dc5cea1c5306d6a2eb80b9833befe", "22dfb2b145a0bd5a31a1ac3882a1b32148b51d9b2f3bab250290d66f3595bc32"),
    ("sensor_msgs/Temperature",         "ff71b307acdbe7c871a5a6d7ed359100", "72514a14126ab9f8a9abec974c78e5610a367b59db5da355ff1fb982d5bad4b8"),
    ("sensor_msgs/RelativeHumidity",    "8730015b05955b7e992ce29a2678d90f", "8687c99b4fb393cb2e545e407b5ea7fd0b5d8960bcd849a0f86c544740138839"),
    ("sensor_msgs/Illuminance",         "8cf5febb0952fca9d650c3d11a81a188", "b954b25f452fcf81a91c9c2a7e3b3fd85c4c873d452aecb3cfd8fd1da732a22d"),
    ("sensor_msgs/JointState",          "3066dcd76a6cfaef579bd0f34173e9fd", "a13ee3a330e346c9d87b5aa18d24e11690752bd33a0350f11c5882bc9179260e"),
    ("nav_msgs/Odometry",               "cd5e73d190d741a2f92e81eda573aca7", "3cc97dc7fb7502f8714462c526d369e35b603cfc34d946e3f2eda2766dfec6e0"),
    ("nav_msgs/OccupancyGrid",          "3381f2d731d4076ec5c71b0759edbe4e", "8d348150c12913a31ee0ec170fbf25089e4745d17035792a1ba94d6f0bc0cfc7"),
    ("nav_msgs/Path",                   "6227e2b7e9cce15051f669a5e197bbf7", "1957a5bb3cee5da65c4e52e52b65a93df227efce4c20f8458b36e73066ca334b"),
    ("diagnostic_msgs/DiagnosticArray", "60810da900de1dd6ddd437c3503511da", "5a8a36efb05fb25070fa0fb3810290c0e6cd4862b54a8fb975a1ee8dc55a333e"),
    ("tf2_msgs/TFMessage",              "94810edda583a504dfda3829e70d7eec", "e369d0f05a23ae52508854b66f6aa0437f3449d652e8cbf22d5abe85d020f087"),
    // ROS 1 only.
    ("tf/tfMessage",                    "94810edda583a504dfda3829e70d7eec", ""),
];

/// Whether a type is one of [`OBSERVATIONS`], by its name in either ROS and its hash. ROS 2
/// before Iron has no hashes, and matches topics by the name of the type.
pub fn is_observation(type_name: &str, type_hash: &str) -> bool {
    let name = short_name(type_name);
    let Some((_, md5, rihs01)) = OBSERVATIONS.iter().find(|(known, ..)| name == *known) else {
        return false;
    };
    match dialect_of(type_name) {
        Dialect::Ros1 => type_hash == *md5,
        Dialect::Ros2 if rihs01.is_empty() => false,
        Dialect::Ros2 => type_hash.is_empty() || type_hash.strip_prefix("RIHS01_") == Some(*rihs01),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "90c7ef2dc6895d81024acba2ac42f369";
    const RIHS01: &str = "RIHS01_64c191398013af96509d518dac71d5164f9382553fce5c1f8cca5be7924bd828";

    #[test]
    fn an_observation_requires_type_name_and_hash() {
        assert!(is_observation("sensor_msgs/LaserScan", MD5));
        assert!(is_observation("sensor_msgs/msg/LaserScan", RIHS01));
        assert!(is_observation("sensor_msgs/msg/LaserScan", ""), "Humble has no hashes");
        for (name, hash) in [
            ("sensor_msgs/LaserScan", ""),
            ("sensor_msgs/LaserScan", "*"),
            ("sensor_msgs/LaserScan", "9f195f881246fdfa2798d1d3eebca84a"),
            ("sensor_msgs/msg/LaserScan", "RIHS01_"),
            ("sensor_msgs/msg/LaserScan", MD5),
            ("sensor_msgs/msg/Image", RIHS01),
            ("x/LaserScan", MD5),
            ("geometry_msgs/Twist", MD5),
            ("tf/msg/tfMessage", ""),
            ("", ""),
        ] {
            assert!(!is_observation(name, hash), "{name} {hash}");
        }
    }
}
