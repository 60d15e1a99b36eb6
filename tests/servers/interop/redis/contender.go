// A contender by redsync, with its defaults: enters again and again, and answers with its waits.
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

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
	mutex := redsync.New(pools...).NewMutex(os.Args[2])
	counter := os.Args[3]
	fmt.Println("ready")
	var section, seconds float64
	_, err := fmt.Scan(&section, &seconds)
	must(err)
	length := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	var waits []time.Duration
	for end := time.Now().Add(length(seconds)); ; {
		asked := time.Now()
		if asked.After(end) {
			break
		}
		acquire(mutex)
		waits = append(waits, time.Since(asked))
		text, err := os.ReadFile(counter)
		must(err)
		value, err := strconv.Atoi(string(text))
		must(err)
		time.Sleep(length(section))
		must(os.WriteFile(counter, []byte(strconv.Itoa(value+1)), 0o600))
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
