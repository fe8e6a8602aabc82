-- The time, and how long state lives: what all the scripts start with.
--
-- Numbers are microseconds on the server's clock unless said otherwise.

local function server_time()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- How long a key has to live, in milliseconds.
local function lifetime(expires, now)
  return string.format('%.0f', math.max(math.ceil((expires - now) / 1000), 0) + 1)
end

