    -- One log that nothing stands aside of, in one go: what most calls are for.
    --
    -- Answers as the ledger would, to which it leaves what it cannot read, and calls that ask for nothing.
    -- To make a function, which happens anew in every call, takes longer than most of what is done here:
    -- so there is none.
    repeat
      if not only or #asks <= 8 then break end
      local name, raw = KEYS[state + 1], values and (values[key] or '')
      raw = raw or redis.pcall('GETRANGE', name, '0', '112')
      if type(raw) ~= 'string' then break end
      local form = string.byte(raw) or 0
      if form % 128 >= MARK then break end

      if raw == '' and first_raw then
        -- As for another that was empty; unless what was read with others is no string.
        if not redis.call('SET', name, first_raw, 'PX', first_life, 'NX') then break end
        if first_to == size then
          answer[size + 1] = -2
          size, first_to = size + 1, size + 1
        else
          local ahead = size + 1 - first_from
          for j = first_from, first_end do answer[ahead + j] = answer[j] end
          size = ahead + first_end
          first_to = size
        end
        done = true
        break
      end

      local limit, window = only[2], only[3]
      local x, requests, cost, max_wait, position = struct.unpack('<I8I4I4i8', asks)
      local wanted, ahead = requests * cost, position
      while ahead <= #asks do
        local more, each
        more, each, ahead = struct.unpack('<I4I4', asks, ahead)
        wanted, ahead = wanted + more * each, ahead + 8
      end
      -- Of the records that still count, in their order: those that have been read or added and may be of
      -- use; how many there are, and the last.
      local times, total, last = {}, 0, 0
      -- Of a short log: the bytes of an offset, the first of all that are stored, and how many those are.
      local width, first, stored
      -- Of a ring: the place of the first record that still counts, and how many there is room for.
      local front, room

      if raw == '' then
        stored = 0
      elseif form >= 128 then
        width = (form - 128) / 8
        local others = (#raw - 8) / width
        if width < 1 or width > 7 or width % 1 ~= 0 or others < 0 or others >= SHORT or others % 1 ~= 0 then break end
        first, stored = struct.unpack('<I7', raw, 2), others + 1
        local offsets = others > 0 and { struct.unpack('<' .. string.rep('I' .. width, others), raw, 9) }
        local time, is_sorted = first, true
        for j = 1, stored do
          is_sorted = is_sorted and time >= last
          last = time
          if time + window > now then
            total = total + 1
            times[total] = time
          end
          if j < stored then time = first + offsets[j] end
        end
        if not is_sorted or last > now + SANE then break end
      else
        if #raw < RING_HEADER then break end
        front, stored, room, last = struct.unpack('>I4I4I4I8', raw)
        if stored == 0 or stored > room or front >= room or last > now + SANE
          or redis.call('STRLEN', name) ~= RING_HEADER + room * 8 then break end
        if last + window > now then
          -- How many are past: mostly none or one.
          local past, step, least = 0, 1, stored - 1
          while past < least do
            local probe = math.min(past + step, least) - 1
            local start = RING_HEADER + (front + probe) % room * 8
            local time = struct.unpack('<I8', redis.call('GETRANGE', name, start, start + 7))
            if time + window > now then
              least, step = probe, 1
            else
              past, step = probe + 1, step * 2
            end
          end
          front, total = (front + past) % room, stored - past
        end
      end
      if total == 0 then last = 0 end

      -- What is stored, before anything is added.
      local before, is_short = total, total + wanted <= SHORT
      local keeps_all = is_short or total + wanted > limit
      -- What is added: records, and how many there are of each in a row.
      local records, repeats, runs = {}, {}, 0
      if x < now then x = now end
      local place, burst_at, burst = size + 2, 0, 0
      while requests > 0 do
        -- How many have the same slot, which is that of the first.
        local at, alike, leaving = x, math.floor((limit - total) / cost), total + cost - limit
        while leaving > 0 do
          local time = times[leaving]
          if not time and leaving <= before then
            -- Those that have to leave first, as many as may be of use.
            local start = (front + leaving - 1) % room
            local count = math.min(wanted, 128, before - leaving + 1, room - start)
            local from = RING_HEADER + start * 8
            local some = { struct.unpack('<' .. string.rep('I8', count),
              redis.call('GETRANGE', name, from, from + count * 8 - 1)) }
            for j = 1, count do times[leaving + j - 1] = some[j] end
            time = some[1]
          end
          if alike < 1 then
            at, alike = math.max(x, time + window), 1
          elseif alike < requests and time and time + window <= at then
            alike = alike + 1
          else
            break
          end
          leaving = leaving + cost
        end
        if alike > requests then alike = requests end
        local wait = at - now
        if wait > max_wait or wait > HORIZON then
          answer[place + 1], answer[place + 2] = -requests, wait
          place, requests = place + 2, 0
        else
          if at ~= burst_at then burst_at, burst = at, 0 end
          local own = (at > earliest and at or earliest) + margin + burst * stagger + math.floor(wait / DRIFT)
          local record, grows = own, stagger
          if own < last then
            record = last
            if stagger > 0 then alike = math.min(alike, math.floor((last - own) / stagger) + 1) end
            grows = 0
          end
          if alike == 1 then grows = 0 end
          local added, rows, each = alike * cost, 1, alike * cost
          if grows > 0 then rows, each = alike, cost end
          for row = 0, rows - 1 do
            local time = record + row * grows
            runs = runs + 1
            records[runs], repeats[runs] = time, each
            if keeps_all then
              local behind = total + row * each
              for j = behind + 1, behind + each do times[j] = time end
            end
          end
          answer[place + 1], answer[place + 2], answer[place + 3] = alike, at, record
          place = place + 3
          if alike > 1 then
            place = place + 1
            answer[place] = grows
          end
          total, burst, requests = total + added, burst + alike, requests - alike
          x, last = at, record + (alike - 1) * grows
        end
        if requests == 0 and position <= #asks then
          requests, cost, max_wait, position = struct.unpack('<I4I4i8', asks, position)
        end
      end

      local life = last + window - now
      if total == 0 then
        if stored > 0 then
          redis.call('DEL', name)
        elseif values and redis.call('EXISTS', name) == 1 then
          break
        end
      elseif total > before or stored > before then
        local text_of_life = math.ceil(life / 1000) + 1
        -- Of the two, the first is faster, but knows no more than 32 bits everywhere.
        text_of_life = string.format(text_of_life < 2 ^ 31 and '%d' or '%.0f', text_of_life)
        local whole, packed
        if not is_short then
          local parts = {}
          if runs == total - before then
            for j = 1, runs, 128 do
              local to = math.min(j + 127, runs)
              parts[#parts + 1] = struct.pack('<' .. string.rep('I8', to - j + 1), unpack(records, j, to))
            end
          else
            for j = 1, runs do parts[j] = string.rep(struct.pack('<I8', records[j]), repeats[j]) end
          end
          packed = table.concat(parts)
        end
        if total <= SHORT then
          -- Even so, as some were refused.
          for j = before + 1, keeps_all and before or total do
            times[j] = struct.unpack('<I8', packed, (j - before) * 8 - 7)
          end
          if room then
            -- It has become short.
            for j = 1, before do
              local start = RING_HEADER + (front + j - 1) % room * 8
              times[j] = struct.unpack('<I8', redis.call('GETRANGE', name, start, start + 7))
            end
          end
          if width and stored == before and last - first < 256 ^ width then
            -- None has left, and the others fit in as they are.
            whole = raw
            for j = before + 1, total do whole = whole .. struct.pack('<I' .. width, times[j] - first) end
          else
            first, width = times[1], 1
            while last - first >= 256 ^ width do width = width + 1 end
            whole = struct.pack('<BI7', 128 + 8 * width, first)
            if total > 1 then
              local offsets = {}
              for j = 2, total do offsets[j - 1] = times[j] - first end
              whole = whole .. struct.pack('<' .. string.rep('I' .. width, total - 1), unpack(offsets))
            end
          end
        else
          if room and total <= room and room <= 2 * total + 64 then
            local behind = (front + before) % room
            local cut = math.min(total - before, room - behind) * 8
            redis.call('SETRANGE', name, RING_HEADER + behind * 8, string.sub(packed, 1, cut))
            if cut < #packed then redis.call('SETRANGE', name, RING_HEADER, string.sub(packed, cut + 1)) end
            redis.call('SETRANGE', name, '0', struct.pack('>I4I4I4I8', front, total, room, last))
            redis.call('PEXPIRE', name, text_of_life)
          else
            local kept = ''
            if room and before > 0 then
              local from, cut = RING_HEADER + front * 8, math.min(before, room - front)
              kept = redis.call('GETRANGE', name, from, from + cut * 8 - 1)
              if cut < before then
                kept = kept .. redis.call('GETRANGE', name, RING_HEADER, RING_HEADER + (before - cut) * 8 - 1)
              end
            elseif before > 0 then
              kept = struct.pack('<' .. string.rep('I8', before), unpack(times, 1, before))
            end
            -- With room for a sixteenth more, but for none beyond the limit while nobody waits.
            room = total + math.floor(total / 16) + 8
            if total <= limit then room = math.min(room, limit) end
            whole = struct.pack('>I4I4I4I8', 0, total, room, last) .. kept .. packed
              .. string.rep('\0', (room - total) * 8)
          end
        end
        if raw == '' then
          if not redis.call('SET', name, whole, 'PX', text_of_life, 'NX') then break end
        elseif whole then
          redis.call('PSETEX', name, text_of_life, whole)
        end
        if raw == '' then
          first_from, first_end, first_to = size + 1, place, place
          first_raw, first_life = whole, text_of_life
        end
      end
      answer[size + 1] = total < limit and limit - total or 0
      answer[size + 2] = total > 0 and life or 0
      size, done = place, true
    until true
