-- Reading and writing state.

-- No record may lie further ahead than this: a wait, a window and some more.
local SANE = 30 * 365 * 24 * 3600 * 1000000

local function refuse(key)
  error('the value of ' .. key .. ' was not written by a throttle', 0)
end

local function check(number, key, now)
  if type(number) == 'number' and number >= 0 and number <= now + SANE and number % 1 == 0 then return number end
  refuse(key)
end

local function load_number(key, now)
  local raw = redis.call('GET', key)
  if not raw then return 0 end
  return check(tonumber(raw), key, now)
end

local function save_number(key, number, now)
  redis.call('SET', key, string.format('%.0f', number), 'PX', lifetime(number, now))
end

local function pack_records(records)
  local parts, count = {}, #records
  for start = 1, count, 64 do
    local stop = math.min(start + 63, count)
    parts[#parts + 1] = struct.pack('<' .. string.rep('I8', stop - start + 1),
      unpack(records, start, stop))
  end
  return table.concat(parts)
end
