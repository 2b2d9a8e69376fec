// SPDX-License-Identifier: Apache-2.0
// A roscpp node with several publishers of one topic. Orders by line: "latched NAME" and
// "volatile NAME" advertise, "publish NAME TEXT", "shutdown NAME". Reports as agent.py does.

#include <ros/ros.h>
#include <std_msgs/String.h>

#include <iostream>
#include <map>
#include <string>

int main(int argc, char** argv) {
  ros::init(argc, argv, argv[1], ros::init_options::NoSigintHandler);
  ros::NodeHandle node;
  ros::AsyncSpinner spinner(1);
  spinner.start();
  std::map<std::string, ros::Publisher> publishers;
  std::cout << "{\"did\": \"start\"}" << std::endl;
  std::string verb, name;
  while (std::cin >> verb >> name) {
    if (verb == "publish") {
      std_msgs::String message;
      std::cin >> message.data;
      publishers[name].publish(message);
    } else if (verb == "shutdown") {
      publishers[name].shutdown();
    } else {
      publishers[name] = node.advertise<std_msgs::String>(argv[2], 10, verb == "latched");
    }
    std::cout << "{\"did\": \"" << verb << "\"}" << std::endl;
  }
}
