-- Spacing, twin of spacing.rs.
--
-- State: a decimal integer, the time in microseconds from which the next request may depart.

local spacing = {}
spacing.__index = spacing

function spacing.load(key, now, interval)
  return setmetatable({
    key = key, now = now, interval = interval, number = load_number(key, now), touched = false,
  }, spacing)
end

function spacing:earliest(x)
  return math.max(x, self.number)
end

function spacing:take(record, cost)
  local before = self.number
  self.number = self:after(before, record, cost)
  self.touched = true
  return before
end

function spacing:after(before, record, cost)
  return math.max(before, record) + self.interval * cost
end

function spacing:remaining()
  return self.number <= self.now and 1 or 0
end
