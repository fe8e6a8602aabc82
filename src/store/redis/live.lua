          if is_granted then ledger.live() end
          answer[size + 3], answer[size + 4], answer[size + 5] = is_lost and 1 or 0, holds.life.start, holds.life.version
