#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what the restaurant needs in addition to both ROS: Debian's packages, the simulator's
# physics and the page's library into target/restaurant, and the ROS 2 interfaces without a wheel into
# target/ros2/kilted. With the argument `browser`, also Chromium, which the test of the page drives.
set -eu
cd "$(dirname "$0")/../.."
folder=target/restaurant
kilted=target/ros2/kilted
sources=crates/restaurant/ros/interfaces

browser=""
[ "${1:-}" != browser ] || browser="chromium chromium-driver python3-selenium"
# shellcheck disable=SC2086  # a list that is meant to be split into words
crates/lab/setup.sh python3-actionlib-msgs python3-aiohttp python3-yaml curl stress-ng $browser
crates/lab/ros2.sh kilted rosidl

packages="pymunk==7.3.1 rosbags==0.11.9"
if [ "$(cat $folder/installed 2>/dev/null)" != "$packages" ]; then
    echo "restaurant: installing into $folder: $packages"
    /usr/bin/python3 -m venv --clear $folder
    # shellcheck disable=SC2086
    $folder/bin/pip install --quiet --disable-pip-version-check $packages
    echo "$packages" > $folder/installed
fi

# The build for browsers is in the package of npm.
roslib=roslib-1.4.1.tgz
sum=6c3d1e9da711da10e23369655cfc93fcbab3d808bd70f35f5d48361eba7651e7
if [ ! -f $folder/roslib.js ]; then
    curl --silent --show-error --fail --output $folder/$roslib https://registry.npmjs.org/roslib/-/$roslib
    echo "$sum  $folder/$roslib" | sha256sum --check --quiet
    tar --extract --gzip --to-stdout --file $folder/$roslib package/build/roslib.min.js > $folder/roslib.part
    mv $folder/roslib.part $folder/roslib.js
fi

# Adds tf2_msgs and nav2_msgs to the environment of ROS 2.
generate() {
    wheels=$PWD/target/ros2/rosidl
    unset LD_LIBRARY_PATH _ROS_WHEELS_BOOTSTRAP_COMPLETE
    export PATH="$wheels/bin:/usr/bin:/bin" AMENT_PREFIX_PATH="$wheels" CMAKE_PREFIX_PATH="$wheels"
    export LD_LIBRARY_PATH="$wheels/lib" PYTHONPATH="$wheels/lib/python3.11/site-packages"
    for package in tf2_msgs nav2_msgs; do
        cmake -S $sources/$package -B $folder/build/$package -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF \
            -DPython3_EXECUTABLE="$wheels/bin/python" -DCMAKE_INSTALL_PREFIX="$PWD/$kilted"
        cmake --build $folder/build/$package --parallel --target install
    done
}
if ! cmp -s $folder/interfaces $kilted/interfaces 2>/dev/null; then
    echo "restaurant: generating tf2_msgs and nav2_msgs (about a minute)"
    (generate) > $folder/interfaces.log 2>&1 || { tail -n 20 $folder/interfaces.log >&2; exit 1; }
    cat $sources/*/*/*.msg $sources/*/*/*.action > $folder/interfaces
    cp $folder/interfaces $kilted/interfaces
fi
$kilted/bin/python -c "import aiohttp" 2>/dev/null || {
    unset LD_LIBRARY_PATH _ROS_WHEELS_BOOTSTRAP_COMPLETE
    $kilted/bin/pip install --quiet --disable-pip-version-check aiohttp==3.13.2
}
