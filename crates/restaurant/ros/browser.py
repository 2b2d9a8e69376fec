# SPDX-License-Identifier: Apache-2.0
"""Places an order in a real browser, as a guest does. browser.py URL TABLE ROBOT DRIVEN PICTURE.png

Picks the table and the robot, presses Start, and waits until the page says that the robot is at the
table and then back in the kitchen. Then holds the key that drives the robot DRIVEN forward. PICTURE.png
shows the page while the robot serves, or when a wait has timed out. Standard output: `served`.
"""

import sys

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

PATIENCE_S = 90
# Time between two looks at the page: a robot is at a table for only two seconds.
LOOK_S = 0.2
DRIVE_S = 1.5
OPTIONS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
           "--window-size=900,1050"]


# One script finds the robot and reads its state, since the page replaces these elements with each state.
STATE_OF = """
const name = [...document.querySelectorAll("#states dt")].find((it) => it.textContent === arguments[0]);
return name ? name.nextElementSibling.textContent : "";
"""


def state_of(driver, robot):
    """Returns what the page says of a robot."""
    return driver.execute_script(STATE_OF, robot)


def drive(driver, robot):
    driver.find_element(By.CSS_SELECTOR, "input[name=driven][value='%s']" % robot).click()
    ActionChains(driver).key_down("i").pause(DRIVE_S).key_up("i").perform()


def main():
    url, table, robot, driven, picture = sys.argv[1:6]
    options = webdriver.ChromeOptions()
    for option in OPTIONS:
        options.add_argument(option)
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        driver.get(url)
        wait = WebDriverWait(driver, PATIENCE_S, LOOK_S)
        start = driver.find_element(By.ID, "start")
        wait.until(lambda _: start.is_enabled() and state_of(driver, robot))
        driver.find_element(By.CSS_SELECTOR, "input[name=tables][value='%s']" % table).click()
        driver.find_element(By.CSS_SELECTOR, "input[name=robots][value='%s']" % robot).click()
        start.click()
        wait.until(lambda _: state_of(driver, robot) == "at table " + table)
        driver.save_screenshot(picture)
        wait.until(lambda _: state_of(driver, robot) == "in the kitchen")
        served = int(driver.find_element(By.ID, "served").text)
        if served < 1:
            sys.exit("the page counts %d orders served" % served)
        drive(driver, driven)
    except TimeoutException:
        driver.save_screenshot(picture)
        sys.exit("the page said: " + driver.find_element(By.TAG_NAME, "body").text)
    finally:
        driver.quit()
    print("served", flush=True)


main()
