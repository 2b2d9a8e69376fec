# SPDX-License-Identifier: Apache-2.0
"""Places an order in a real browser, as a guest does. browser.py URL TABLE ROBOT DRIVEN PICTURE.png

Picks the table and the robot, presses Start, and waits until the page says that the robot is at the
table and then back in the kitchen. Then holds the key that drives the robot DRIVEN forward. PICTURE.png
gets the page while the robot serves. Standard output: `served`.
"""

import sys

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

PATIENCE_S = 90
DRIVE_S = 1.5
OPTIONS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
           "--window-size=900,1050"]


def state_of(driver, robot):
    """Returns what the page says of a robot."""
    names = driver.find_elements(By.CSS_SELECTOR, "#states dt")
    texts = driver.find_elements(By.CSS_SELECTOR, "#states dd")
    return dict(zip([it.text for it in names], [it.text for it in texts])).get(robot, "")


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
        wait = WebDriverWait(driver, PATIENCE_S, ignored_exceptions=[Exception])
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
    finally:
        driver.quit()
    print("served", flush=True)


main()
