-- Spacing, twin of spacing.rs.
--
-- State: a decimal integer, the time in microseconds from which the next request may depart.

local spacing = counted_by_number()

function spacing.load(key, now, interval)
  return number.load(spacing, key, now, interval)
end

algorithms.spacing = spacing
