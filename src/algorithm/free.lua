-- The free slots of a key, in the order in which they were handed out: twin of the list in ledger.rs.
--
-- State: for each slot its at, record, cost and receipt, in numbers of 8 bytes. It is read in pages, so
-- a call that needs a few of many slots does not read them all. Logs are marked while there is a list.

local NUMBER, PAGE = 8, 64

local free = {}

-- Whether slot a was handed out after slot b.
local function is_after(a, b)
  if a[1] ~= b[1] then return a[1] > b[1] end
  for i = 4, math.min(#a, #b) do
    if a[i] ~= b[i] then return a[i] > b[i] end
  end
  return a[2] > b[2]
end

-- Reads what stands in the value of this name behind the holds.
function free.load(raw, key, size, now)
  free.key, free.size, free.now = key, size, now
  free.pages, free.raw, free.first, free.touched = {}, '', 1, false
  if raw == '' then return end
  local count = #raw / (size * NUMBER)
  if count < 1 or count % 1 ~= 0 then refuse(key) end
  free.raw = raw
  for start = 0, count - 1, PAGE do
    free.pages[#free.pages + 1] = { start = start, count = math.min(PAGE, count - start) }
  end
end

-- The slots of a page.
function free.slots(page)
  if page.slots then return page.slots end
  local slots, size = {}, free.size
  local numbers = unpack_all('I8', NUMBER, free.raw, page.start * size * NUMBER + 1, page.count * size)
  for i = 1, page.count do
    local slot = {}
    for j = 1, size do slot[j] = check(numbers[(i - 1) * size + j], free.key, free.now) end
    slots[i] = slot
  end
  page.slots = slots
  return slots
end

-- When the first slot of a page is.
function free.at(page)
  if page.slots then return page.slots[1][1] end
  return (struct.unpack('<I8', free.raw, page.start * free.size * NUMBER + 1))
end

-- Takes out all whose time has passed.
function free.take_past()
  local past, pages = {}, free.pages
  while pages[1] and free.at(pages[1]) < free.now do
    local slots, left = free.slots(pages[1]), {}
    for _, slot in ipairs(slots) do
      local to = slot[1] < free.now and past or left
      to[#to + 1] = slot
    end
    if #left > 0 then
      pages[1].slots = left
      break
    end
    table.remove(pages, 1)
  end
  if #past > 0 then free.touched = true end
  return past
end

-- The first slot from x to `latest` that will do, where it is. No call asks for one before `past` again.
function free.find(past, x, latest, will_do)
  local pages = free.pages
  while pages[free.first + 1] and free.at(pages[free.first + 1]) < past do free.first = free.first + 1 end
  for i = free.first, #pages do
    for place, slot in ipairs(free.slots(pages[i])) do
      if slot[1] > latest then return nil end
      if slot[1] >= x and will_do(slot) then return slot, i, place end
    end
  end
end

function free.take(i, place)
  local page = free.pages[i]
  table.remove(free.slots(page), place)
  if #page.slots == 0 then table.remove(free.pages, i) end
  free.touched = true
end

function free.insert(slot)
  free.touched = true
  local pages = free.pages
  local i = #pages
  while i > 1 and is_after(free.slots(pages[i])[1], slot) do i = i - 1 end
  if i == 0 then
    pages[1] = { slots = { slot } }
    return
  end
  local slots = free.slots(pages[i])
  local place = #slots
  while place > 0 and is_after(slots[place], slot) do place = place - 1 end
  if place == #slots and place >= PAGE then
    table.insert(pages, i + 1, { slots = { slot } })
  else
    table.insert(slots, place + 1, slot)
  end
end

function free.last()
  local page = free.pages[#free.pages]
  if not page then return nil end
  local slots = free.slots(page)
  return slots[#slots]
end

function free.clear()
  if free.pages[1] then free.pages, free.first, free.touched = {}, 1, true end
end

function free.pop()
  local i = #free.pages
  free.take(i, #free.slots(free.pages[i]))
end

function free.packed()
  local parts, size = {}, free.size * NUMBER
  for i, page in ipairs(free.pages) do
    if page.slots then
      local numbers = {}
      for _, slot in ipairs(page.slots) do
        for j = 1, free.size do numbers[#numbers + 1] = slot[j] end
      end
      parts[i] = pack_all('I8', numbers)
    else
      parts[i] = string.sub(free.raw, page.start * size + 1, (page.start + page.count) * size)
    end
  end
  return table.concat(parts)
end
