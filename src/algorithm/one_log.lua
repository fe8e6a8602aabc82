    -- One log without free slots and with few requests, in one go: what most calls are for.
    --
    -- Answers as the ledger would, which knows all cases, and leaves to it what is not so simple. It takes
    -- longer to make a function, which happens anew in every call, than to do what is done here: so there
    -- is none.
    repeat
      if not only or some_free and redis.call('EXISTS', KEYS[key]) == 1 then break end
      local name, raw = KEYS[state + 1], values and (values[key] or '')
      raw = raw or redis.pcall('GETRANGE', name, '0', '112')
      if type(raw) ~= 'string' then break end

      if raw == '' and first_raw then
        -- As for another that was empty.
        redis.call('PSETEX', name, first_life, first_raw)
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
      -- The records that still count, of which the j-th is times[j + shift]; how many they are, and the last.
      local times, shift, total, last = {}, 0, 0, 0
      -- Of a short log: the bytes of an offset, the first of all that are stored, and how many those are.
      local width, first, stored
      -- Of a ring: the place of the first record that still counts, how many there is room for, and what
      -- is added.
      local front, room, added

      if raw == '' then
        stored = 0
      elseif string.byte(raw) >= 128 then
        width = (string.byte(raw) - 128) / 8
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
        if total == 0 then last = 0 end
      else
        local wanted = requests * cost
        if #raw < RING_HEADER or position <= #asks or wanted > SHORT or wanted > limit then break end
        front, stored, room, last = struct.unpack('>I4I4I4I8', raw)
        if stored == 0 or stored > room or front >= room or last > now + SANE then break end
        -- The foremost, as far as the end of the ring.
        local seen = math.min(FOREMOST, stored, room - front)
        local start = RING_HEADER + front * 8
        local foremost = redis.call('GETRANGE', name, start, start + seen * 8 - 1)
        if #foremost ~= seen * 8 then break end
        times = { struct.unpack('<' .. string.rep('I8', seen), foremost) }
        while shift < seen and times[shift + 1] + window <= now do shift = shift + 1 end
        front, total, added = front + shift, stored - shift, {}
        -- If more may have left, or if it has to become a short log or a smaller ring.
        if shift == seen or total + wanted <= SHORT or room > 2 * total + 64 then break end
        local leaving = math.max(total + cost - limit, 1)
        local needed = math.min(total + wanted - limit, total)
        if needed > seen - shift then
          -- Those that have to leave first lie further behind.
          local place = (front + leaving - 1) % room
          local count = needed - leaving + 1
          if place + count > room then break end
          start = RING_HEADER + place * 8
          local further = redis.call('GETRANGE', name, start, start + count * 8 - 1)
          if #further ~= count * 8 then break end
          times, shift = { struct.unpack('<' .. string.rep('I8', count), further) }, 1 - leaving
        end
      end

      -- Slots, as in ledger.reserve.
      if x < now then x = now end
      local before, place, burst_at, burst = total, size + 2, 0, 0
      while requests > 0 do
        if not room and total + requests * cost > SHORT then break end
        local at, leaving = x, total + cost - limit
        if leaving > 0 then
          local left = times[leaving + shift] + window
          if left > at then at = left end
        end
        local wait = at - now
        if wait > max_wait or wait > HORIZON then
          answer[place + 1], answer[place + 2] = -requests, wait
          place, requests = place + 2, 0
        else
          if at ~= burst_at then burst_at, burst = at, 0 end
          local record = (at > earliest and at or earliest) + margin + burst * stagger
          if wait > 0 then record = record + math.floor(wait / DRIFT) end
          if record < last then record = last end
          if added then
            for j = #added + 1, #added + cost do added[j] = record end
          else
            for j = total + 1, total + cost do times[j] = record end
          end
          answer[place + 1], answer[place + 2], answer[place + 3] = 1, at, record
          place, total, burst, requests = place + 3, total + cost, burst + 1, requests - 1
          x, last = at, record
        end
        if requests == 0 and position <= #asks then
          requests, cost, max_wait, position = struct.unpack('<I4I4i8', asks, position)
        end
      end
      if requests > 0 or room and total > room then break end

      local life = last + window - now
      if total > before then
        local text_of_life = string.format('%.0f', math.ceil(life / 1000) + 1)
        if room then
          local behind = (front + before) % room
          local ahead = math.min(total - before, room - behind)
          local packed = struct.pack('<' .. string.rep('I8', total - before), unpack(added))
          redis.call('SETRANGE', name, RING_HEADER + behind * 8, string.sub(packed, 1, ahead * 8))
          if ahead < total - before then
            redis.call('SETRANGE', name, RING_HEADER, string.sub(packed, ahead * 8 + 1))
          end
          redis.call('SETRANGE', name, '0', struct.pack('>I4I4I4I8', front % room, total, room, last))
          redis.call('PEXPIRE', name, text_of_life)
        else
          local is_empty = raw == ''
          if stored == before and width and last - first < 256 ^ width then
            -- None has left, and the others fit in as they are.
            for j = before + 1, total do raw = raw .. struct.pack('<I' .. width, times[j] - first) end
          else
            first, width = times[1], 1
            while last - first >= 256 ^ width do width = width + 1 end
            raw = struct.pack('<BI7', 128 + 8 * width, first)
            if total > 1 then
              local offsets = {}
              for j = 2, total do offsets[j - 1] = times[j] - first end
              raw = raw .. struct.pack('<' .. string.rep('I' .. width, total - 1), unpack(offsets))
            end
          end
          redis.call('PSETEX', name, text_of_life, raw)
          if is_empty then
            first_from, first_end, first_to = size + 1, place, place
            first_raw, first_life = raw, text_of_life
          end
        end
      end
      answer[size + 1] = total < limit and limit - total or 0
      answer[size + 2] = total > 0 and life or 0
      size, done = place, true
    until true
