-- The sliding window log, twin of sliding_log.rs.
--
-- State: a string of HEADER bytes (the place of the first record that counts, how many count), then
-- records of ENTRY bytes each, in microseconds, never decreasing, then room for more. Only the parts
-- that a call needs are read and written, so its cost does not grow with the limit.

local ENTRY, HEADER, PAGE = 8, 8, 64

local sliding_log = {}
sliding_log.__index = sliding_log

function sliding_log.load(key, now, limit, window)
  local raw = redis.call('GETRANGE', key, 0, HEADER + PAGE * ENTRY - 1)
  local self = setmetatable({
    key = key, limit = limit, window = window, now = now,
    first = 0,    -- the place of the first record that counts
    stored = 0,   -- how many count
    room = 0,     -- how many records the string has room for
    pages = {},   -- records read so far, by page
    added = {},   -- records not written yet
    touched = false,
  }, sliding_log)
  if #raw > 0 then
    local length = #raw
    if length == HEADER + PAGE * ENTRY then
      length = redis.call('STRLEN', key)
    end
    self.room = (length - HEADER) / ENTRY
    if self.room < 1 or self.room % 1 ~= 0 then refuse(key) end
    self.first, self.stored = struct.unpack('<I4I4', raw)
    if self.first + self.stored > self.room or self.stored == 0 then refuse(key) end
    self:read(0, string.sub(raw, HEADER + 1))
    check(self:at(self.stored - 1), key, now)
    while self.stored > 0 and self:at(0) + window <= now do
      self.first = self.first + 1
      self.stored = self.stored - 1
      self.touched = true
    end
  end
  return self
end

function sliding_log:read(page, raw)
  local count = math.floor(#raw / ENTRY)
  local records = { struct.unpack('<' .. string.rep('I8', count), raw) }
  self.pages[page] = records
  return records
end

-- The record `index` places after the first one that counts.
function sliding_log:at(index)
  if index >= self.stored then return self.added[index - self.stored + 1] end
  local place = self.first + index
  local page = math.floor(place / PAGE)
  local records = self.pages[page]
  if not records then
    local start = HEADER + page * PAGE * ENTRY
    records = self:read(page, redis.call('GETRANGE', self.key, start, start + PAGE * ENTRY - 1))
  end
  return records[place - page * PAGE + 1]
end

function sliding_log:count()
  return self.stored + #self.added
end

function sliding_log:earliest(x, cost)
  local place = self:count() + cost - 1 - self.limit
  if place < 0 then return x end
  return math.max(x, self:at(place) + self.window)
end

function sliding_log:last_record()
  local count = self:count()
  return count > 0 and self:at(count - 1) or 0
end

function sliding_log:take(record, cost)
  self.touched = true
  local added, count = self.added, #self.added
  for i = 1, cost do added[count + i] = record end
end

function sliding_log:is_last(record, cost)
  local count = self:count()
  return count >= cost and self:at(count - cost) == record and self:at(count - 1) == record
end

function sliding_log:give_back(record, cost)
  if record + self.window <= self.now then return end
  local low, high = 0, self:count()
  while low < high do
    local middle = math.floor((low + high) / 2)
    if self:at(middle) < record then low = middle + 1 else high = middle end
  end
  local count = self:count()
  local stop = low
  while stop < count and stop < low + cost and self:at(stop) == record do stop = stop + 1 end
  if stop > low then self:remove(low, stop) end
end

-- Removes the records from the place `from` up to, but not including, the place `to`.
function sliding_log:remove(from, to)
  self.touched = true
  if to < self.stored then
    local rest = redis.call('GETRANGE', self.key, self:byte(to), self:byte(self.stored) - 1)
    redis.call('SETRANGE', self.key, self:byte(from), rest)
    self.pages = {}
  end
  local kept = {}
  for i = math.max(to - self.stored, 0) + 1, #self.added do kept[#kept + 1] = self.added[i] end
  if from > self.stored then
    local before = {}
    for i = 1, from - self.stored do before[i] = self.added[i] end
    for i = 1, #kept do before[#before + 1] = kept[i] end
    kept = before
  end
  self.added = kept
  self.stored = self.stored - math.max(math.min(to, self.stored) - from, 0)
end

function sliding_log:byte(index)
  return HEADER + (self.first + index) * ENTRY
end

function sliding_log:remaining()
  return math.max(self.limit - self:count(), 0)
end

function sliding_log:expires()
  local last = self:last_record()
  return last > 0 and last + self.window or 0
end

function sliding_log:save()
  if not self.touched then return end
  local count = self:count()
  if count == 0 then
    redis.call('DEL', self.key)
    return
  end
  local expires, added = self:expires(), pack_records(self.added)
  if self.first + count <= self.room then
    redis.call('SETRANGE', self.key, 0, struct.pack('<I4I4', self.first, count))
    if #added > 0 then redis.call('SETRANGE', self.key, self:byte(self.stored), added) end
    redis.call('PEXPIRE', self.key, lifetime(expires, self.now))
  else
    local kept = ''
    if self.stored > 0 then
      kept = redis.call('GETRANGE', self.key, self:byte(0), self:byte(self.stored) - 1)
    end
    -- An eighth more than is needed, so that the string is rewritten only now and then.
    local spare = string.rep('\0', math.floor(count / 8) * ENTRY)
    redis.call('SET', self.key, struct.pack('<I4I4', 0, count) .. kept .. added .. spare,
      'PX', lifetime(expires, self.now))
  end
end
