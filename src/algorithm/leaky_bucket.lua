-- The leaky bucket, twin of leaky_bucket.rs.
--
-- State: a decimal integer, the time in microseconds at which the bucket is empty.

local leaky_bucket = counted_by_number()

function leaky_bucket.load(key, now, interval, capacity)
  local self = number.load(leaky_bucket, key, now, interval)
  self.capacity = capacity
  return self
end

function leaky_bucket:longest_wait(margin)
  local all = (self.interval + margin) * self.capacity
  -- all * capacity / (2 * DRIFT), in parts that a double holds.
  local unit = 2 * DRIFT
  return all + math.floor(all / unit) * self.capacity + math.floor(all % unit * self.capacity / unit)
end

algorithms.leaky = leaky_bucket
