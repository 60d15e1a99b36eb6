// A contender by redsync, with its defaults: enters again and again, and answers with its waits. With a lease in seconds
// and a journal as further arguments, each entry is written down.
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Nanoseconds on the clock that all processes of a machine share; Go's own clocks begin with the process.
func monotonic() int64 {
	const clockMonotonic = 1
	var now syscall.Timespec
	_, _, failed := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	if failed != 0 {
		panic(failed)
	}
	return now.Nano()
}

func acquire(mutex *redsync.Mutex) {
	for {
		err := mutex.Lock()
		if err == nil {
			return
		}
		// It gives up after 32 attempts.
		var taken *redsync.ErrTaken
		if !errors.As(err, &taken) && !errors.Is(err, redsync.ErrFailed) {
			panic(err)
		}
	}
}

func main() {
	var pools []redsyncredis.Pool
	for _, socket := range strings.Split(os.Args[1], ",") {
		pools = append(pools, goredis.NewPool(redis.NewClient(&redis.Options{Network: "unix", Addr: socket})))
	}
	length := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	var options []redsync.Option
	note := func(event string) {}
	if len(os.Args) > 4 {
		lease, err := strconv.ParseFloat(os.Args[4], 64)
		must(err)
		options = append(options, redsync.WithExpiry(length(lease)))
		journal, err := os.OpenFile(os.Args[5], os.O_APPEND|os.O_WRONLY, 0)
		must(err)
		note = func(event string) {
			_, err := fmt.Fprintf(journal, "%d %s %d\n", os.Getpid(), event, monotonic())
			must(err)
		}
	}
	mutex := redsync.New(pools...).NewMutex(os.Args[2], options...)
	counter := os.Args[3]
	fmt.Println("ready")
	var section, seconds float64
	_, err := fmt.Scan(&section, &seconds)
	must(err)
	var waits []time.Duration
	for end := time.Now().Add(length(seconds)); ; {
		asked := time.Now()
		if asked.After(end) {
			break
		}
		acquire(mutex)
		waits = append(waits, time.Since(asked))
		note("in")
		text, err := os.ReadFile(counter)
		must(err)
		// Empty after a process that was killed while it wrote.
		value := 0
		if len(text) > 0 {
			value, err = strconv.Atoi(string(text))
			must(err)
		}
		time.Sleep(length(section))
		must(os.WriteFile(counter, []byte(strconv.Itoa(value+1)), 0o600))
		note("out")
		released, err := mutex.Unlock()
		must(err)
		if !released {
			panic("no majority of the servers had it")
		}
	}
	fmt.Print("waited ")
	for _, wait := range waits {
		fmt.Printf("%.3f ", float64(wait.Microseconds())/1000)
	}
	fmt.Println()
}
