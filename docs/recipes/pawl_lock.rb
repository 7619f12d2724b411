#!/usr/bin/env ruby
# A lock of pawl in Ruby 3, standard library only; the work's database is SQLite by the gem sqlite3 (Debian:
# ruby-sqlite3).
#
#     PawlLock.locked("report", ttl_ms: 30_000, wait_ms: 60_000) do |lease|
#       ...                      # lease.token goes with every write to a store that checks it
#       lease.check              # between steps: raises LeaseLost once it is time to stop
#     end
#
# What is promised. Work is told to stop a quarter of the ttl before the lease can end, by a clock that is
# read before each request is sent and goes on while the machine is suspended. Work that hasn't stopped a
# sixth of the ttl later is ended with its process: a thread can't be ended safely. Nobody can stop a process
# that is stopped itself, so the database must check the token; `guarded` does it for SQLite.
#
# As a program: pawl_lock.rb LOCK TTL_MS WAIT_MS DATABASE STEPS PAUSE_MS counts in a table `tally`, see
# clients.md. Exit codes: 0 done, 1 the work failed, 113 the lease was lost, 114 somebody else has the lock,
# 115 pawld gave no good answer.
# PAWL_SERVER: where pawld is, http://HOST:PORT or unix:/PATH; http://127.0.0.1:7295 unless set.
# PAWL_TOKEN_FILE: a file with the access token, if pawld wants one; read for each request, so it may be changed.

require "json"
require "net/http"
require "securerandom"
require "socket"
require "uri"

module PawlLock
  SERVER = ENV.fetch("PAWL_SERVER", "http://127.0.0.1:7295")
  PATIENCE_S = 10 # how long to go on asking, beyond the wait, when there is no good answer
  BACK_OFF_S = 0.1
  BACK_OFF_CAP_S = 2

  class Held < StandardError; end # somebody else has the lock, also after the wait
  class Unavailable < StandardError; end # pawld gave no good answer
  class LeaseLost < StandardError; end # stop: the lease is lost, or will end before the next answer may come

  # Seconds on a clock that nobody sets; on Linux one that goes on through suspend.
  CLOCK = defined?(Process::CLOCK_BOOTTIME) ? Process::CLOCK_BOOTTIME : Process::CLOCK_MONOTONIC

  def self.now
    Process.clock_gettime(CLOCK)
  end

  # ---------------------------------------------------------------- one call

  # Net::HTTP over a unix socket
  class UnixHTTP < Net::HTTP
    def self.at(path)
      new("localhost", 80, nil).tap { |http| http.instance_variable_set(:@path, path) }
    end

    def connect
      @socket = Net::BufferedIO.new(UNIXSocket.new(@path), read_timeout: @read_timeout, continue_timeout: @continue_timeout)
    end
  end

  # [status, reply, seconds of Retry-After]; status 0 and why if there was no answer: what became of the request
  # isn't known.
  def self.call(lock, verb, params, timeout_s)
    uri = URI(SERVER)
    http = uri.scheme == "unix" ? UnixHTTP.at(SERVER.delete_prefix("unix:")) : Net::HTTP.new(uri.hostname, uri.port, nil)
    http.use_ssl = uri.scheme == "https"
    http.open_timeout = http.read_timeout = http.write_timeout = timeout_s
    http.max_retries = 0 # repeating is done below, where the time is known
    response = http.start { http.post("/v1/locks/#{lock}/#{verb}", JSON.generate(params), access) }
    [response.code.to_i, Hash(JSON.parse(response.body)), response["Retry-After"].to_i.clamp(0, PATIENCE_S)]
  rescue StandardError => e # refused, reset, timed out, or no JSON; a signal is none of these
    [0, { "message" => e.message }, 0]
  end

  def self.access
    path = ENV.fetch("PAWL_TOKEN_FILE", "")
    path.empty? ? {} : { "Authorization" => "Bearer #{File.read(path).strip}" }
  end

  def self.worth_repeating?(status)
    [0, 408, 429].include?(status) || status >= 500
  end

  # ---------------------------------------------------------------- a lease

  # Yields a lease that is renewed until the block has ended, in whatever way; then it is released.
  def self.locked(lock, ttl_ms:, wait_ms:)
    lease = acquire(lock, ttl_ms, wait_ms)
    begin
      lease.start
      yield lease
    ensure
      lease.stop
    end
  end

  # A Lease that nobody renews yet. The lease id is made once: with it, every repetition means the same lease
  # and the same place in the queue.
  def self.acquire(lock, ttl_ms, wait_ms)
    lease = Lease.new(lock, ttl_ms)
    begun = now
    pause = BACK_OFF_S
    loop do
      sent = now
      left_ms = [0, wait_ms - ((sent - begun) * 1000).to_i].max
      asked = { lease_id: lease.id, ttl_ms: ttl_ms, wait_ms: left_ms, owner: "#{Socket.gethostname}:#{Process.pid}" }
      status, reply, retry_after = call(lock, "acquire", asked, left_ms / 1000.0 + 5)
      if status == 200
        lease.granted(reply["token"], sent + reply["ttl_ms"].to_i / 1000.0)
        # A grant that came after a wait is counted from before the wait, so it is renewed first, which tells
        # a deadline to work with.
        return lease if now < sent + lease.ttl / 3 || lease.renew(5).first
      elsif status == 409
        raise Held, "#{lock} is held by #{(reply['holder'] || {}).fetch('owner', 'somebody')}"
      elsif !worth_repeating?(status)
        raise Unavailable, "pawld refuses: #{status} #{reply['message']}"
      end
      raise Unavailable, "no good answer from #{SERVER}: #{status} #{reply['message']}" if now > begun + wait_ms / 1000.0 + PATIENCE_S

      sleep [retry_after, pause * rand(0.5..1.0)].max
      pause = [pause * 2, BACK_OFF_CAP_S].min
    end
  rescue Held
    raise
  rescue Exception # also a signal: what may have been granted is given back
    lease&.give_back
    raise
  end

  # token goes with every write.
  class Lease
    attr_reader :lock, :id, :token, :ttl

    def initialize(lock, ttl_ms)
      @lock = lock
      @id = SecureRandom.uuid
      @ttl_ms = ttl_ms
      @ttl = ttl_ms / 1000.0
      @deadline = 0 # the lease can't have ended before
      @lost = @done = false
      @mutex = Mutex.new
      @changed = ConditionVariable.new
    end

    def granted(token, deadline)
      @token = token
      @deadline = deadline
    end

    # Between steps of the work.
    def check
      raise LeaseLost, "the lease on #{@lock} is lost" if @lost || PawlLock.now >= stop_at
    end

    # A sleep that ends when the lease is lost.
    def sleep(seconds)
      wait_for(seconds) { @lost }
      check
    end

    # [has the lease a new deadline?, seconds of Retry-After]; the lease is lost when pawld says so.
    def renew(timeout_s)
      sent = PawlLock.now
      status, reply, retry_after = PawlLock.call(@lock, "renew", { lease_id: @id, ttl_ms: @ttl_ms }, timeout_s)
      @deadline = sent + reply["ttl_ms"].to_i / 1000.0 if status == 200
      lose if status == 410
      [status == 200, retry_after]
    end

    def start
      @thread = Thread.new { keep_alive }
    end

    # Ends the keep-alive, then the lease.
    def stop
      @mutex.synchronize do
        @done = true
        @changed.broadcast
      end
      @thread&.join(@ttl)
      release
    end

    def give_back
      @deadline = PawlLock.now + 1
      release
    end

    private

    def stop_at
      @deadline - @ttl / 4
    end

    def lose
      @mutex.synchronize do
        @lost = true
        @changed.broadcast
      end
    end

    # Until the block is true, at most so long; tells whether it is.
    def wait_for(seconds)
      end_at = PawlLock.now + seconds
      @mutex.synchronize do
        until yield
          left = end_at - PawlLock.now
          return false if left <= 0

          @changed.wait(@mutex, left)
        end
      end
      true
    end

    # As often as it makes sense; a lease that can't be released ends by itself.
    def release
      end_at = [@deadline, PawlLock.now + 5].min
      pause = BACK_OFF_S
      while (left = end_at - PawlLock.now) > 0
        status, _, retry_after = PawlLock.call(@lock, "release", { lease_id: @id }, [0.1, left].max)
        return if [200, 410].include?(status) || @lost

        Kernel.sleep([[retry_after, pause].max, end_at - PawlLock.now].min.clamp(0, nil))
        pause = [pause * 2, BACK_OFF_CAP_S].min
      end
    end

    def keep_alive
      pause = BACK_OFF_S
      due = @deadline - @ttl * 2 / 3
      loop do
        return if wait_for([due, stop_at].min - PawlLock.now) { @done }

        left = stop_at - PawlLock.now
        break if left <= 0 || @lost

        renewed, retry_after = renew([0.1, left / 3].max) # one answer that never comes must not use up all the time
        if renewed
          pause = BACK_OFF_S
          due = @deadline - @ttl * 2 / 3
        else
          due = PawlLock.now + [[retry_after, left / 3].min, pause * rand(0.5..1.0)].max
          pause = [pause * 2, BACK_OFF_CAP_S].min
        end
        break if @lost
      end
      lose
      return if wait_for(@ttl / 6) { @done }

      warn "the lease on #{@lock} is lost and the work goes on: ending the process"
      exit!(113)
    end
  end
end

# ---------------------------------------------------------------- the work: its database checks the token (share/pawl/guards/sqlite)

# A transaction that is refused once a later holder has written.
def guarded(db, lease)
  result = nil
  db.transaction(:immediate) do # which rolls back when something is raised
    db.execute("INSERT INTO pawl_fence (resource, token) VALUES (?, ?)", [lease.lock, lease.token])
    result = yield
  end
  result
rescue SQLite3::Exception => e
  raise unless e.message.include?("PAWL1")

  raise PawlLock::LeaseLost, "refused by the database: #{e.message}"
end

# Reads a number, thinks about it, writes the next one: between the two, nobody else may.
def count(lease, database, steps, pause_s)
  db = SQLite3::Database.new(database)
  # Not busy_timeout: the gem lets no other thread run within a call, so the keep-alive couldn't while that
  # waits. Nor can it within one long statement.
  db.busy_handler { |tries| sleep(0.02) && tries < 1000 }
  steps.times do
    lease.check
    value = guarded(db, lease) { db.get_first_value("SELECT value FROM tally WHERE name = ?", [lease.lock]) }
    lease.sleep(pause_s)
    guarded(db, lease) { db.execute("UPDATE tally SET value = ? WHERE name = ?", [value + 1, lease.lock]) }
  end
end

if $PROGRAM_NAME == __FILE__
  require "sqlite3"

  if ARGV.size != 6
    warn "usage: pawl_lock.rb LOCK TTL_MS WAIT_MS DATABASE STEPS PAUSE_MS"
    exit 125
  end
  trap("TERM") { exit(143) } # an exception, so that the lock is released
  lock, ttl_ms, wait_ms, database, steps, pause_ms = ARGV
  begin
    PawlLock.locked(lock, ttl_ms: ttl_ms.to_i, wait_ms: wait_ms.to_i) do |lease|
      count(lease, database, steps.to_i, pause_ms.to_i / 1000.0)
    end
  rescue PawlLock::LeaseLost, PawlLock::Held, PawlLock::Unavailable, SQLite3::Exception => e
    warn "pawl_lock.rb: #{e.message}"
    exit({ PawlLock::LeaseLost => 113, PawlLock::Held => 114, PawlLock::Unavailable => 115 }.fetch(e.class, 1))
  end
end
