-- The generic cell rate algorithm, twin of gcra.rs.
--
-- State: a decimal integer, the theoretical arrival time in microseconds.

local gcra = {}
gcra.__index = gcra

function gcra.load(key, now, interval, tolerance)
  return setmetatable({
    key = key, now = now, interval = interval, tolerance = tolerance,
    number = load_number(key, now), touched = false,
  }, gcra)
end

function gcra:earliest(x, cost)
  return math.max(x, self.number + self.interval * (cost - 1) - self.tolerance)
end

gcra.take = spacing.take
gcra.after = spacing.after

function gcra:remaining()
  local early = self.now + self.tolerance - self.number
  if early < 0 then return 0 end
  return math.min(math.floor(early / self.interval), math.floor(self.tolerance / self.interval)) + 1
end
