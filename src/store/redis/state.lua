-- Reading and writing state.

-- How long a key has to live, in milliseconds.
local function lifetime(expires, now)
  return math.max(math.ceil((expires - now) / 1000), 0) + 1
end

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
  if not string.find(raw, '^%+?%d+$') then refuse(key) end
  return check(tonumber(raw), key, now)
end

local function save_number(key, number, now)
  redis.call('PSETEX', key, lifetime(number, now), string.format('%.0f', number))
end

-- What struct.pack and struct.unpack take at once: Lua's stack holds no more than some thousands.
local PORTION = 128

-- Packs numbers of `format` each, behind `parts`.
local function pack_all(format, numbers, parts)
  parts = parts or {}
  local count = #numbers
  for start = 1, count, PORTION do
    local stop = math.min(start + PORTION - 1, count)
    parts[#parts + 1] = struct.pack('<' .. string.rep(format, stop - start + 1),
      unpack(numbers, start, stop))
  end
  return table.concat(parts)
end

-- Unpacks `count` items of `size` bytes each, from the byte `from` on; by `format`, which is of so many
-- numbers, or one.
local function unpack_all(format, size, raw, from, count, numbers_each)
  local numbers, each = {}, numbers_each or 1
  for start = 0, count - 1, PORTION do
    local portion = math.min(PORTION, count - start)
    local some = { struct.unpack('<' .. string.rep(format, portion), raw, from + start * size) }
    for i = 1, portion * each do numbers[start * each + i] = some[i] end
  end
  return numbers
end

-- Times, never decreasing, that differ little, and optionally a count for each:
--   a byte, 128 + 8 * (bytes of an offset) + (bytes of a count); 7 bytes, the first time; its count;
--   then for each other its offset from the first time, and its count.

local function bytes_of(number)
  local bytes = 1
  while number >= 256 do
    number = math.floor(number / 256)
    bytes = bytes + 1
  end
  return bytes
end

local function pack_times(times, counts)
  local first, count = times[1], #times
  local offset_bytes, count_bytes = bytes_of(times[count] - first), 0
  if counts then
    local most = 1
    for i = 1, count do most = math.max(most, counts[i]) end
    count_bytes = bytes_of(most)
  end
  local header = struct.pack('<BI7', 128 + 8 * offset_bytes + count_bytes, first)
  local format, of_count = 'I' .. offset_bytes, 'I' .. count_bytes
  if not counts then
    local offsets = {}
    for i = 2, count do offsets[i - 1] = times[i] - first end
    return pack_all(format, offsets, { header })
  end
  local numbers = {}
  for i = 2, count do
    numbers[2 * i - 3], numbers[2 * i - 2] = times[i] - first, counts[i]
  end
  local parts = { header, struct.pack('<' .. of_count, counts[1]) }
  for start = 1, #numbers, 2 * PORTION do
    local stop = math.min(start + 2 * PORTION - 1, #numbers)
    local formats = string.rep(format .. of_count, (stop - start + 1) / 2)
    parts[#parts + 1] = struct.pack('<' .. formats, unpack(numbers, start, stop))
  end
  return table.concat(parts)
end

-- Returns the times and, if the value has them, the counts.
local function unpack_times(raw, key, now)
  local header = string.byte(raw) or 0
  local offset_bytes, count_bytes = math.floor(header / 8) % 8, header % 8
  local each = offset_bytes + count_bytes
  local rest = #raw - 8 - count_bytes
  if header < 128 or header >= 192 or offset_bytes == 0 or rest < 0 or rest % each ~= 0 then refuse(key) end
  local first = check(struct.unpack('<I7', raw, 2), key, now)
  local times, counts = { first }, nil
  local others = rest / each
  if count_bytes == 0 then
    local offsets = unpack_all('I' .. offset_bytes, offset_bytes, raw, 9, others)
    for i = 1, others do times[i + 1] = first + offsets[i] end
  else
    counts = { (struct.unpack('<I' .. count_bytes, raw, 9)) }
    local format = 'I' .. offset_bytes .. 'I' .. count_bytes
    local numbers = unpack_all(format, each, raw, 9 + count_bytes, others, 2)
    for i = 1, others do
      times[i + 1], counts[i + 1] = first + numbers[2 * i - 1], numbers[2 * i]
    end
  end
  for i = 2, #times do
    if times[i] < times[i - 1] then refuse(key) end
  end
  check(times[#times], key, now)
  return times, counts
end

-- By name, as the rules have it.
local algorithms = {}
