// SPDX-License-Identifier: Apache-2.0
// Orders, and the restaurant from above, over rosbridge.
"use strict";

// Speed and turn (m/s, rad/s) are those of teleoperation.
const ROBOTS = {
  kobuki: { colour: "#1f6feb", radius: 0.18, speed: 0.5, turn: 1.5 },
  tetra: { colour: "#d9480f", radius: 0.25, speed: 0.8, turn: 1.5 },
};
const TABLES = { 1: [0.4, 2.4], 2: [2.8, 2.4], 3: [0.4, 4.4], 4: [2.8, 4.4], 5: [0.4, 6.4], 6: [2.8, 6.4] };
const TABLE_SIDE = 0.5;
const WIDTH = 3.2, LENGTH = 8.0;
const SCALE = 110, MARGIN = 32;
const THROTTLE_MS = 100;
// Keys of teleop_twist_keyboard: shares of speed and turn.
const KEYS = { i: [1, 0], ",": [-0.6, 0], j: [0, 1], l: [0, -1], u: [0.8, 0.6], o: [0.8, -0.6] };
const COMMAND_MS = 100;

const seen = {};
for (const name of Object.keys(ROBOTS)) seen[name] = { pose: null, plan: [], scan: null };
let state = { served: 0, queue: [], robots: {} };

const byId = (id) => document.getElementById(id);

function choices(group, names, label) {
  const box = byId(group);
  for (const [index, name] of names.entries()) {
    const input = Object.assign(document.createElement("input"), { type: "radio", name: group, value: name, checked: index === 0 });
    const text = document.createElement("label");
    text.append(input, " " + label(name));
    box.append(text);
  }
}

function chosen(group) {
  return document.querySelector(`input[name=${group}]:checked`).value;
}

function doing(robot) {
  if (!robot.present) return "no contact";
  const order = robot.order ? `table ${robot.order.table}` : "";
  return {
    free: "in the kitchen", going: `to ${order}`, serving: `at ${order}`,
    returning: "back to the kitchen", failed: "found no way, tries again",
  }[robot.state] ?? robot.state;
}

function showState() {
  byId("served").textContent = state.served;
  byId("queue").replaceChildren(...state.queue.map((order) => {
    const item = document.createElement("li");
    item.textContent = `table ${order.table}, ${order.robot === "any" ? "any robot" : order.robot}`;
    return item;
  }));
  byId("states").replaceChildren(...Object.entries(state.robots).flatMap(([name, robot]) => {
    const title = Object.assign(document.createElement("dt"), { textContent: name });
    title.style.setProperty("--robot", ROBOTS[name]?.colour ?? "#888");
    const text = Object.assign(document.createElement("dd"), { textContent: doing(robot) });
    return [title, text];
  }));
}

const canvas = byId("arena"), pen = canvas.getContext("2d");
// The kitchen is at the bottom: y grows upwards.
const at = (x, y) => [MARGIN + x * SCALE, canvas.height - MARGIN / 4 - y * SCALE];

function line(points, style, width) {
  pen.beginPath();
  points.forEach(([x, y], index) => (index ? pen.lineTo(...at(x, y)) : pen.moveTo(...at(x, y))));
  Object.assign(pen, { strokeStyle: style, lineWidth: width });
  pen.stroke();
}

function drawArena() {
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.fillStyle = "#eef4ec";
  const [left, bottom] = at(0, 0);
  pen.fillRect(left, bottom - 1.2 * SCALE, WIDTH * SCALE, 1.2 * SCALE);
  line([[0, 0], [WIDTH, 0], [WIDTH, LENGTH], [0, LENGTH], [0, 0]], "#39424e", 3);
  Object.assign(pen, { font: "16px system-ui", textAlign: "center", textBaseline: "middle" });
  for (const [name, [x, y]] of Object.entries(TABLES)) {
    const [px, py] = at(x - TABLE_SIDE / 2, y + TABLE_SIDE / 2);
    pen.fillStyle = "#d6c3a5";
    pen.fillRect(px, py, TABLE_SIDE * SCALE, TABLE_SIDE * SCALE);
    pen.fillStyle = "#1d2430";
    pen.fillText(name, ...at(x, y));
  }
  pen.fillText("kitchen", ...at(WIDTH / 2, 0.2));
}

function drawRobot(name, { colour, radius }) {
  const { pose, plan, scan } = seen[name];
  if (!pose) return;
  const [x, y, theta] = pose;
  // The pose and plan of a robot without contact are the last ones that it sent.
  pen.globalAlpha = state.robots[name]?.present === false ? 0.3 : 1;
  if (scan) {
    pen.fillStyle = colour + "60";
    scan.ranges.forEach((range, index) => {
      if (range === null) return;
      const angle = theta + scan.angle_min + index * scan.angle_increment;
      const [px, py] = at(x + range * Math.cos(angle), y + range * Math.sin(angle));
      pen.fillRect(px - 1.5, py - 1.5, 3, 3);
    });
  }
  if (plan.length) line(plan, colour, 2);
  pen.beginPath();
  pen.arc(...at(x, y), radius * SCALE, 0, 2 * Math.PI);
  pen.fillStyle = colour;
  pen.fill();
  line([[x, y], [x + radius * Math.cos(theta), y + radius * Math.sin(theta)]], "#fff", 3);
  pen.globalAlpha = 1;
}

function draw() {
  drawArena();
  for (const [name, robot] of Object.entries(ROBOTS)) drawRobot(name, robot);
  requestAnimationFrame(draw);
}

function listen(ros, name, messageType, receive) {
  new ROSLIB.Topic({ ros, name, messageType, throttle_rate: THROTTLE_MS }).subscribe(receive);
}

// While a key is pressed, its command goes to the chosen robot; on release, a command that stops it.
function driveByKeyboard(ros) {
  const topics = {};
  for (const name of Object.keys(ROBOTS)) {
    topics[name] = new ROSLIB.Topic({ ros, name: `/${name}/cmd_vel`, messageType: "geometry_msgs/Twist" });
  }
  // Advertise early, so that the topics are connected before a key is pressed.
  ros.on("connection", () => Object.values(topics).forEach((topic) => topic.advertise()));
  let key = null;
  const command = ([speed, turn]) => {
    const robot = ROBOTS[chosen("driven")];
    if (!robot) return;
    const zero = { x: 0, y: 0, z: 0 };
    topics[chosen("driven")].publish({
      linear: { ...zero, x: speed * robot.speed }, angular: { ...zero, z: turn * robot.turn },
    });
  };
  const release = () => {
    if (key) command([0, 0]);
    key = null;
  };
  addEventListener("keydown", (event) => {
    if (!KEYS[event.key] || event.repeat) return;
    key = event.key;
    command(KEYS[key]);
  });
  addEventListener("keyup", (event) => event.key === key && release());
  addEventListener("blur", release);
  setInterval(() => key && command(KEYS[key]), COMMAND_MS);
}

function connect() {
  const ros = new ROSLIB.Ros({ url: `ws://${location.host}/ros` });
  const orders = new ROSLIB.Topic({ ros, name: "/orders", messageType: "std_msgs/String" });
  ros.on("connection", () => {
    byId("connection").textContent = "connected";
    byId("start").disabled = false;
    orders.advertise();
  });
  ros.on("close", () => {
    byId("connection").textContent = "not connected; reload the page";
    byId("start").disabled = true;
  });
  ros.on("error", () => {});
  listen(ros, "/restaurant/state", "std_msgs/String", (message) => {
    state = JSON.parse(message.data);
    showState();
  });
  for (const name of Object.keys(ROBOTS)) {
    listen(ros, `/${name}/amcl_pose`, "geometry_msgs/PoseWithCovarianceStamped", ({ pose: { pose } }) => {
      const { z, w } = pose.orientation;
      seen[name].pose = [pose.position.x, pose.position.y, 2 * Math.atan2(z, w)];
    });
    listen(ros, `/${name}/plan`, "nav_msgs/Path", (message) => {
      seen[name].plan = message.poses.map(({ pose: { position } }) => [position.x, position.y]);
    });
    listen(ros, `/${name}/scan`, "sensor_msgs/LaserScan", (message) => { seen[name].scan = message; });
  }
  driveByKeyboard(ros);
  byId("start").addEventListener("click", () => {
    const order = { id: `page-${Date.now()}`, table: chosen("tables"), robot: chosen("robots") };
    orders.publish({ data: JSON.stringify(order) });
  });
}

choices("tables", Object.keys(TABLES), (name) => name);
choices("driven", ["none", ...Object.keys(ROBOTS)], (name) => name);
choices("robots", ["any", ...Object.keys(ROBOTS)], (name) => (name === "any" ? "any robot" : name));
connect();
draw();
