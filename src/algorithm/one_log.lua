-- One log without free slots and with few requests, in one go: what most calls are for.
--
-- Answers as the ledger would, which knows all cases, and leaves to it what it does not know itself. All
-- that it needs is here: whatever the ledger takes is defined anew with every call.

-- The most records of a short log, and the size of a ring's header and entries, as in sliding_log.lua.
local MOST, HEADER, ENTRY = 16, 20, 8

-- How many of a ring's first records are looked at.
local FRONT = 8

-- The log at hand: the records that still count, of which the i-th is times[i + shift]; how many they are,
-- and the last; those that are added, which begin behind so many. From where the next slot is looked for,
-- and how many requests have the last one.
local limit, window, times, shift, total, last, added, more, x, burst_at, burst

-- Answers like requests behind the first `place` numbers of `answer`; returns how many those are then.
local function hand_out(answer, place, terms, count, cost, max_wait)
  local margin, stagger, earliest = terms.margin, terms.stagger, now + terms.round_trip
  while count > 0 do
    local at, leaving = x, total + cost - limit
    if leaving > 0 then
      local left = times[leaving + shift] + window
      if left > at then at = left end
    end
    local wait = at - now
    if wait > max_wait or wait > HORIZON then
      answer[place + 1], answer[place + 2] = -count, wait
      return place + 2
    end
    if at ~= burst_at then burst_at, burst = at, 0 end
    local record = (at > earliest and at or earliest) + margin + burst * stagger + math.floor(wait / DRIFT)
    if record < last then record = last end
    for i = more + 1, more + cost do added[i] = record end
    answer[place + 1], answer[place + 2], answer[place + 3] = 1, at, record
    place, total, more, burst = place + 3, total + cost, more + cost, burst + 1
    x, last, count = at, record, count - 1
  end
  return place
end

-- What follows the outcomes: how many more may depart now, and the time until all may.
local function sum_up(answer, size)
  answer[size + 1] = total < limit and limit - total or 0
  answer[size + 2] = total > 0 and last + window - now or 0
end

-- Reads a short log: the bytes of an offset, the first of all that are stored, and how many there are; or
-- nothing if it is no such log.
local function read_short(raw)
  local width = (string.byte(raw) - 128) / 8
  local others = (#raw - 8) / width
  if width < 1 or width > 7 or width % 1 ~= 0 or others < 0 or others >= MOST or others % 1 ~= 0 then return end
  local first = struct.unpack('<I7', raw, 2)
  local offsets = others > 0 and { struct.unpack('<' .. string.rep('I' .. width, others), raw, 9) }
  local time, previous = first, 0
  for i = 1, others + 1 do
    if time < previous then return end
    if time + window > now then
      total = total + 1
      times[total] = time
    end
    previous = time
    if i <= others then time = first + offsets[i] end
  end
  if time > now + SANE then return end
  last = total > 0 and time or 0
  return width, first, others + 1
end

local function write_short(key, raw, before, width, first, stored)
  if stored == before and width and last - first < 256 ^ width then
    -- None has left, and all fits as it is.
    local format = '<I' .. width
    for i = before + 1, total do raw = raw .. struct.pack(format, times[i] - first) end
  else
    first, width = times[1], 1
    while last - first >= 256 ^ width do width = width + 1 end
    raw = struct.pack('<BI7', 128 + 8 * width, first)
    if total > 1 then
      local offsets = {}
      for i = 2, total do offsets[i - 1] = times[i] - first end
      raw = raw .. struct.pack('<' .. string.rep('I' .. width, total - 1), unpack(offsets))
    end
  end
  redis.call('SET', key, raw, 'PX', lifetime(last + window, now))
end

local function reserve_short(answer, size, terms, key, asks, raw)
  local width, first, stored
  if raw ~= '' then
    width, first, stored = read_short(raw)
    if not width then return end
  end
  local before, place, position = total, size + 2, 9
  added, more = times, total
  repeat
    local count, cost, max_wait
    count, cost, max_wait, position = struct.unpack('<I4I4i8', asks, position)
    if total + count * cost > MOST then return end
    place = hand_out(answer, place, terms, count, cost, max_wait)
  until position > #asks
  if total > before then write_short(key, raw, before, width, first, stored) end
  sum_up(answer, size)
  return place
end

-- So many records of a ring, from a place on; or nothing if they are not there.
local function read_ring(key, room, place, count)
  place = place % room
  local start, ahead = HEADER + place * ENTRY, math.min(count, room - place)
  local raw = redis.call('GETRANGE', key, start, start + ahead * ENTRY - 1)
  if ahead < count then
    raw = raw .. redis.call('GETRANGE', key, HEADER, HEADER + (count - ahead) * ENTRY - 1)
  end
  if #raw ~= count * ENTRY then return end
  return { struct.unpack('<' .. string.rep('I8', count), raw) }
end

local function write_ring(key, room, first)
  local place = (first + total - more) % room
  local ahead = math.min(more, room - place)
  local raw = struct.pack('<' .. string.rep('I8', more), unpack(added))
  redis.call('SETRANGE', key, HEADER + place * ENTRY, string.sub(raw, 1, ahead * ENTRY))
  if ahead < more then redis.call('SETRANGE', key, HEADER, string.sub(raw, ahead * ENTRY + 1)) end
  redis.call('SETRANGE', key, '0', struct.pack('>I4I4I4I8', first % room, total, room, last))
  redis.call('PEXPIRE', key, lifetime(last + window, now))
end

local function reserve_ring(answer, size, terms, key, asks, raw)
  local count, cost, max_wait, position = struct.unpack('<I4I4i8', asks, 9)
  local wanted = count * cost
  if #raw < HEADER or position <= #asks or wanted > MOST or wanted > limit then return end
  local first, stored, room, latest = struct.unpack('>I4I4I4I8', raw)
  if stored == 0 or stored > room or first >= room or latest > now + SANE then return end
  local seen = math.min(FRONT, stored)
  local front = read_ring(key, room, first, seen)
  if not front then return end
  local past = 0
  while past < seen and front[past + 1] + window <= now do past = past + 1 end
  local left = stored - past
  -- If more may have left, or if it has to become a short log or a smaller ring.
  if past == seen or left + wanted <= MOST or room > 2 * left + 64 then return end
  total, last, added, more = left, latest, {}, 0
  local leaving = left + cost - limit
  if leaving + wanted - cost <= seen - past then
    times, shift = front, past
  else
    local from = math.max(leaving, 1)
    times = read_ring(key, room, first + past + from - 1, math.min(wanted, left - from + 1))
    if not times then return end
    shift = 1 - from
  end
  local place = hand_out(answer, size + 2, terms, count, cost, max_wait)
  if total > room then return end
  if more > 0 then write_ring(key, room, first + past) end
  sum_up(answer, size)
  return place
end

-- Adds the answer for this key behind the first `size` numbers of `answer` and returns how many there are
-- then; or nothing, if nothing has changed and it is the ledger's.
local function reserve_in_log(answer, size, terms, key, most, length, asks)
  local raw = redis.pcall('GETRANGE', key, '0', '112')
  if type(raw) ~= 'string' then return end
  limit, window, times, shift, total, last = most, length, {}, 0, 0, 0
  burst_at, burst = 0, 0
  x = struct.unpack('<I8', asks)
  if x < now then x = now end
  local is_short = raw == '' or string.byte(raw) >= 128
  local reserve = is_short and reserve_short or reserve_ring
  return reserve(answer, size, terms, key, asks, raw)
end
