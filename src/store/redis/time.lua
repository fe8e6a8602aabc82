-- The time, and how long things last: what all the scripts start with.
--
-- Numbers are microseconds on the server's clock unless said otherwise.

-- Clocks may drift apart by one part in so many.
local DRIFT = 50000

-- The longest wait.
local HORIZON = 10 * 365 * 24 * 3600 * 1000000

local function server_time()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- How long a key has to live, in milliseconds.
local function lifetime(expires, now)
  return string.format('%.0f', math.max(math.ceil((expires - now) / 1000), 0) + 1)
end

