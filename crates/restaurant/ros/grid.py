# SPDX-License-Identifier: Apache-2.0
"""Occupancy grids: maps as map_server stores them, as messages, and distances to obstacles."""

import os

import numpy as np

RESOLUTION = 0.05
UNKNOWN, FREE, OCCUPIED = -1, 0, 100
# Values of a pixel in a map file, as map_saver writes them.
PIXELS = {UNKNOWN: 205, FREE: 254, OCCUPIED: 0}


class Grid:
    """Rows of y, columns of x, from an origin at the lower left."""

    def __init__(self, values, origin=(0.0, 0.0), resolution=RESOLUTION):
        self.values, self.origin, self.resolution = values, origin, resolution

    @property
    def shape(self):
        return self.values.shape

    def cells(self, points):
        """Returns rows and columns of points (n x 2), and which of them are inside."""
        at = np.floor((np.asarray(points) - self.origin) / self.resolution).astype(int)
        columns, rows = at[..., 0], at[..., 1]
        inside = (rows >= 0) & (columns >= 0)
        inside &= (rows < self.shape[0]) & (columns < self.shape[1])
        return rows, columns, inside

    def cell(self, x, y):
        """Returns row and column of the cell nearest to a point."""
        column = int((x - self.origin[0]) / self.resolution)
        row = int((y - self.origin[1]) / self.resolution)
        return min(max(row, 0), self.shape[0] - 1), min(max(column, 0), self.shape[1] - 1)

    def centre(self, row, column):
        return (self.origin[0] + (column + 0.5) * self.resolution,
                self.origin[1] + (row + 0.5) * self.resolution)

    def centres(self, mask):
        """Returns the centres (n x 2) of the cells where `mask` is true."""
        rows, columns = np.nonzero(mask)
        return np.stack([columns + 0.5, rows + 0.5], axis=-1) * self.resolution + self.origin

    def distances(self, points, longest):
        """Returns the distance of each cell's centre to the nearest of `points`, at most `longest`."""
        height, width = self.shape
        x = self.origin[0] + (np.arange(width) + 0.5) * self.resolution
        y = self.origin[1] + (np.arange(height) + 0.5) * self.resolution
        nearest = np.full((height, width), longest * longest)
        for point in points:
            np.minimum(nearest, (y[:, None] - point[1]) ** 2 + (x[None, :] - point[0]) ** 2, out=nearest)
        return np.sqrt(nearest)

    def wall_distances(self, longest):
        """Returns the distance of each cell to the nearest occupied one, at most `longest`."""
        return self.distances(self.centres(self.values == OCCUPIED), longest)

    def message(self, message_class, stamp, frame="map"):
        """Returns a nav_msgs/OccupancyGrid."""
        made = message_class()
        made.header.stamp, made.header.frame_id = stamp, frame
        made.info.map_load_time = stamp
        made.info.resolution = self.resolution
        made.info.height, made.info.width = self.shape
        made.info.origin.position.x, made.info.origin.position.y = self.origin
        made.info.origin.orientation.w = 1.0
        made.data = self.values.astype(np.int8).ravel().tolist()
        return made

    @classmethod
    def of_message(cls, message):
        info = message.info
        values = np.array(message.data, dtype=np.int8).reshape(info.height, info.width)
        origin = (info.origin.position.x, info.origin.position.y)
        return cls(values, origin, info.resolution)

    def save(self, stem):
        """Writes STEM.pgm and STEM.yaml, as map_saver does."""
        pixels = np.full(self.shape, PIXELS[UNKNOWN], dtype=np.uint8)
        for value, pixel in PIXELS.items():
            pixels[self.values == value] = pixel
        with open(stem + ".pgm", "wb") as file:
            file.write(b"P5\n%d %d\n255\n" % (self.shape[1], self.shape[0]) + pixels[::-1].tobytes())
        with open(stem + ".yaml", "w", encoding="utf-8") as file:
            file.write("image: %s.pgm\nresolution: %g\norigin: [%g, %g, 0.0]\nnegate: 0\n"
                       "occupied_thresh: 0.65\nfree_thresh: 0.196\n"
                       % (os.path.basename(stem), self.resolution, *self.origin))

    @classmethod
    def load(cls, path):
        """Reads a map of map_server; `path` is that of its YAML file."""
        import yaml

        with open(path, encoding="utf-8") as file:
            about = yaml.safe_load(file)
        with open(os.path.join(os.path.dirname(path), about["image"]), "rb") as file:
            data = file.read()
        kind, width, height, highest, pixels = data.split(maxsplit=4)
        if kind != b"P5" or highest != b"255":
            raise ValueError("%s is no 8-bit PGM" % about["image"])
        shape = int(height), int(width)
        found = np.frombuffer(data[-shape[0] * shape[1]:], dtype=np.uint8).reshape(shape)[::-1]
        del pixels
        occupancy = (255 - found.astype(float)) / 255
        values = np.full(shape, UNKNOWN, dtype=np.int8)
        values[occupancy < about["free_thresh"]] = FREE
        values[occupancy > about["occupied_thresh"]] = OCCUPIED
        return cls(values, tuple(about["origin"][:2]), about["resolution"])
