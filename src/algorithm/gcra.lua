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

function gcra:remaining(late)
  local latest = self.now + self.tolerance
  if self.time > latest then return 0 end
  -- One may depart; those behind it count from its record.
  return 1 + math.max(0, math.floor((latest - math.max(self.time, self.now + late)) / self.interval))
end

algorithms.gcra = gcra
