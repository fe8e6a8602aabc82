-- The leaky bucket, twin of leaky_bucket.rs.
--
-- State: a decimal integer, the time in microseconds at which the bucket is empty.

local leaky_bucket = counted_by_number()

function leaky_bucket.load(key, now, interval, capacity)
  local self = number.load(leaky_bucket, key, now, interval)
  self.capacity = capacity
  return self
end

leaky_bucket.earliest = spacing.earliest
leaky_bucket.remaining = spacing.remaining

function leaky_bucket:longest_wait(margin)
  local all = (self.interval + margin) * self.capacity
  return all + math.floor(all / (2 * DRIFT)) * self.capacity
end
