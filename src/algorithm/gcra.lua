-- The generic cell rate algorithm, twin of gcra.rs.
--
-- State: a decimal integer, the theoretical arrival time in microseconds.

local gcra = counted_by_number()

function gcra.load(key, now, interval, tolerance)
  local self = number.load(gcra, key, now, interval)
  self.tolerance = tolerance
  return self
end

function gcra:earliest(x, _, cost)
  return math.max(x, self.time + self.interval * (cost - 1) - self.tolerance)
end

function gcra:remaining()
  local early = self.now + self.tolerance - self.time
  if early < 0 then return 0 end
  return math.min(math.floor(early / self.interval), math.floor(self.tolerance / self.interval)) + 1
end

algorithms.gcra = gcra
