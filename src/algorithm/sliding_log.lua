-- The sliding window log, twin of sliding_log.rs.
--
-- State: while it is short, the records packed as state.lua says. Else a ring: RING_HEADER bytes (the place
-- of the first record, how many there are, how many there is room for, and the last record), then room
-- for records of ENTRY bytes each, in microseconds. Of a ring only the parts that a call needs are
-- read and written, so its cost does not grow with the limit. The first byte is greater by MARK if anything
-- stands aside: free slots, or what the upstream has said; then it stands there without a record, too.

local ENTRY, PAGE = 8, 32

-- What only a mark stands on.
local NO_RECORD = string.char(128)

local function marked(raw, has_aside)
  return has_aside and string.char(string.byte(raw) + MARK) .. string.sub(raw, 2) or raw
end

-- The size of what is read first: a whole short log, or the header of a ring.
local GLANCE = 8 + 7 * (SHORT - 1)

local sliding_log = { receipts = 0, is_log = true }
sliding_log.__index = sliding_log

function sliding_log.load(key, now, limit, window)
  local self = setmetatable({
    key = key, limit = limit, window = window, now = now,
    first = 0,     -- the place of the first record
    stored = 0,    -- how many the value holds
    room = 0,      -- how many the ring has room for, if it is one
    whole = nil,   -- all that are stored, by place, if they have been read
    pages = {},    -- those read so far, by page
    added = {},    -- those to be written behind them, and how many there are of each
    times = {},
    more = 0,      -- how many that is
    seen = 1,      -- where the last one was that was looked for, and how many are before it
    before = 0,
    moved = {},    -- those to be written in the place of the first ones
    touched = false,
    is_marked = false,
  }, sliding_log)
  local raw = redis.call('GETRANGE', key, 0, GLANCE - 1)
  if #raw == 0 then return self end
  local form = string.byte(raw)
  if form % 128 >= MARK then
    self.is_marked, form = true, form - MARK
    raw = string.char(form) .. string.sub(raw, 2)
    if raw == NO_RECORD then return self end
  end
  if form >= 128 then
    local times, counts = unpack_times(raw, key, now)
    if counts or #times > SHORT then refuse(key) end
    self.whole, self.stored = times, #times
  else
    if #raw < RING_HEADER + ENTRY then refuse(key) end
    self.first, self.stored, self.room, self.last = struct.unpack('>I4I4I4I8', raw)
    if self.stored == 0 or self.stored > self.room or self.first >= self.room
      or redis.call('STRLEN', key) ~= RING_HEADER + self.room * ENTRY then refuse(key) end
    check(self.last, key, now)
  end
  self:trim()
  return self
end

-- Forgets what has no influence any more: mostly none or one, so that is looked for first.
function sliding_log:trim()
  local past, step = 0, 1
  local function is_past(index) return self:at(index) + self.window <= self.now end
  while past + step <= self.stored and is_past(past + step - 1) do
    past = past + step
    step = step * 2
  end
  if past == 0 then return end
  local high = math.min(past + step - 1, self.stored)
  while past < high do
    local middle = math.floor((past + high) / 2)
    if is_past(middle) then past = middle + 1 else high = middle end
  end
  self.first = self.first + past
  self.stored = self.stored - past
  self.touched = true
end

-- The record `index` places after the first.
function sliding_log:at(index)
  if index >= self.stored then return self:added_at(index - self.stored) end
  if index < #self.moved then return self.moved[index + 1] end
  local place = self.first + index
  if self.whole then return self.whole[place + 1] end
  place = place % self.room
  local page = math.floor(place / PAGE)
  local records = self.pages[page]
  if not records then
    local start = RING_HEADER + page * PAGE * ENTRY
    local raw = redis.call('GETRANGE', self.key, start, start + PAGE * ENTRY - 1)
    records = unpack_all('I8', ENTRY, raw, 1, math.floor(#raw / ENTRY))
    self.pages[page] = records
  end
  return records[place - page * PAGE + 1] or refuse(self.key)
end

function sliding_log:added_at(index)
  local times, seen, before = self.times, self.seen, self.before
  if index < before then seen, before = 1, 0 end
  while index >= before + times[seen] do seen, before = seen + 1, before + times[seen] end
  self.seen, self.before = seen, before
  return self.added[seen]
end

-- Adds a record so many times.
function sliding_log:push(record, times)
  local place = #self.added
  if self.added[place] == record then
    self.times[place] = self.times[place] + times
  else
    self.added[place + 1], self.times[place + 1] = record, times
  end
  self.more = self.more + times
end

-- Drops so many of the last that were added.
function sliding_log:pop(times)
  self.more = self.more - times
  while times > 0 do
    local place = #self.added
    local few = math.min(times, self.times[place])
    self.times[place], times = self.times[place] - few, times - few
    if self.times[place] == 0 then self.added[place], self.times[place] = nil, nil end
  end
  self.seen, self.before = 1, 0
end

-- The bytes of the ring that hold the `count` records from the place `from` on: one part or two.
function sliding_log:parts(from, count)
  from = from % self.room
  local ahead = math.min(count, self.room - from)
  return { RING_HEADER + from * ENTRY, ahead * ENTRY }, { RING_HEADER, (count - ahead) * ENTRY }
end

-- All stored records of a ring.
function sliding_log:raw()
  local raw, moved = pack_all('I8', self.moved), #self.moved
  for _, part in ipairs({ self:parts(self.first + moved, self.stored - moved) }) do
    if part[2] > 0 then raw = raw .. redis.call('GETRANGE', self.key, part[1], part[1] + part[2] - 1) end
  end
  if #raw ~= self.stored * ENTRY then refuse(self.key) end
  return raw
end

function sliding_log:count()
  return self.stored + self.more
end

function sliding_log:earliest(x, _, cost)
  local place = self:count() + cost - 1 - self.limit
  if place < 0 then return x end
  return math.max(x, self:at(place) + self.window)
end

function sliding_log:last_record()
  local count = self:count()
  if count == 0 then return 0 end
  if self.more > 0 then return self.added[#self.added] end
  return self.last or self:at(count - 1)
end

-- How many of `count` requests worth `cost` may depart at `at`, when the first of them may.
function sliding_log:alike(at, cost, count)
  local free = self.limit - self:count()
  if free >= count * cost then return count end
  -- So many records must have left by then.
  local left, needed = math.max(cost - free, 0), math.min(count * cost - free, self:count())
  local step = 1
  while left < needed do
    local probe = math.min(left + step, needed)
    if self:at(probe - 1) + self.window <= at then
      left, step = probe, step * 2
    elseif step == 1 then
      break
    else
      needed, step = probe - 1, 1
    end
  end
  return math.floor((free + left) / cost)
end

function sliding_log:take(slot, taken, step)
  local record, cost = slot[2], slot[3]
  if step == 0 then
    self:push(record, taken * cost)
  else
    for i = 0, taken - 1 do self:push(record + i * step, cost) end
  end
  self.touched = true
end

function sliding_log:is_last(slot)
  local count, record = self:count(), slot[2]
  return count >= slot[3] and self:at(count - slot[3]) == record and self:at(count - 1) == record
end

function sliding_log:give_back(slot)
  if not self:is_last(slot) or slot[2] + self.window <= self.now then
    self:give_back_all({ slot })
    return
  end
  local last = math.min(slot[3], self.more)
  self:pop(last)
  self:cut(self.stored - slot[3] + last)
  self.touched = true
end

-- Drops all stored records but the first so many.
function sliding_log:cut(stored)
  self.stored, self.last = stored, nil
  for i = #self.moved, stored + 1, -1 do self.moved[i] = nil end
end

-- The first place of a record that is no less than this: looked for from the end, where what is given
-- back most often is.
function sliding_log:find(record)
  local high, step = self:count(), 1
  while high >= step and self:at(high - step) >= record do
    high = high - step
    step = step * 2
  end
  local low = math.max(high - step + 1, 0)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if self:at(middle) < record then low = middle + 1 else high = middle end
  end
  return low
end

-- All in one pass, however many; only those on the shorter side of the given ones are moved.
function sliding_log:give_back_all(slots)
  local given, least, most = {}, math.huge, 0
  for _, slot in ipairs(slots) do
    local record = slot[2]
    if record + self.window > self.now then
      given[record] = (given[record] or 0) + slot[3]
      least, most = math.min(least, record), math.max(most, record)
    end
  end
  if most == 0 then return end
  local count, low, high = self:count(), self:find(least), self:find(most + 1)
  if low == high then return end
  local function kept(from, to)
    local records = {}
    for i = from, to - 1 do
      local record = self:at(i)
      local left = given[record] or 0
      if left > 0 then given[record] = left - 1 else records[#records + 1] = record end
    end
    return records
  end
  if self.whole or high > self.stored or count - low <= high then
    local behind = kept(low, count)
    self:pop(math.min(count - low, self.more))
    if low < self.stored then self:cut(low) end
    for _, record in ipairs(behind) do self:push(record, 1) end
  else
    high = math.max(high, #self.moved)
    local ahead = kept(0, high)
    local gone = high - #ahead
    self.first, self.stored, self.moved = self.first + gone, self.stored - gone, ahead
  end
  self.touched = true
end

function sliding_log:longest_wait() return HORIZON end

function sliding_log:remaining()
  return math.max(self.limit - self:count(), 0)
end

function sliding_log:expires()
  local last = self:last_record()
  return last > 0 and last + self.window or 0
end

function sliding_log:save(has_aside, life)
  if not self.touched and self.is_marked == has_aside then
    -- The mark has to stand there for as long.
    if has_aside then redis.call('PEXPIRE', self.key, life) end
    return
  end
  local count = self:count()
  if count == 0 then
    if has_aside then
      redis.call('PSETEX', self.key, life, marked(NO_RECORD, true))
    else
      redis.call('DEL', self.key)
    end
    return
  end
  if not has_aside then life = lifetime(self:expires(), self.now) end
  if count <= SHORT then
    local times = {}
    for i = 1, count do times[i] = self:at(i - 1) end
    redis.call('PSETEX', self.key, life, marked(pack_times(times), has_aside))
  elseif self.whole or count > self.room or self.room > 2 * count + 64 then
    redis.call('PSETEX', self.key, life, marked(self:rewritten(count), has_aside))
  else
    self:write(self.first, pack_all('I8', self.moved), #self.moved)
    self:write(self.first + self.stored, self:packed(), self.more)
    local header = self:header(self.first % self.room, count, self.room)
    redis.call('SETRANGE', self.key, 0, marked(header, has_aside))
    redis.call('PEXPIRE', self.key, life)
  end
end

function sliding_log:header(first, count, room)
  return struct.pack('>I4I4I4I8', first, count, room, self:last_record())
end

-- What was added.
function sliding_log:packed()
  if #self.added == self.more then return pack_all('I8', self.added) end
  local parts = {}
  for i, record in ipairs(self.added) do
    parts[i] = string.rep(struct.pack('<I8', record), self.times[i])
  end
  return table.concat(parts)
end

-- Writes records to the ring, from the place `place` on.
function sliding_log:write(place, raw, count)
  if count == 0 then return end
  local from = 1
  for _, part in ipairs({ self:parts(place, count) }) do
    if part[2] > 0 then redis.call('SETRANGE', self.key, part[1], string.sub(raw, from, from + part[2] - 1)) end
    from = from + part[2]
  end
end

-- A new ring with room for a sixteenth more, so that it is rewritten only now and then; but none beyond
-- the limit while nobody waits.
function sliding_log:rewritten(count)
  local room = count + math.floor(count / 16) + 8
  if count <= self.limit then room = math.min(room, self.limit) end
  local parts = { self:header(0, count, room) }
  if self.whole then
    local kept = {}
    for i = 1, self.stored do kept[i] = self.whole[self.first + i] end
    parts[2] = pack_all('I8', kept)
  else
    parts[2] = self:raw()
  end
  parts[3] = self:packed()
  parts[4] = string.rep('\0', (room - count) * ENTRY)
  return table.concat(parts)
end

algorithms.log = sliding_log
