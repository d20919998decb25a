// SPDX-License-Identifier: Apache-2.0

package root

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// tryEnv makes the test's program say what a build says at its start, with the
// work directory that it names.
const tryEnv = "CAISSON_TEST_TRY"

func TestMain(m *testing.M) {
	Enter()
	if os.Args[0] == "socket" {
		os.Exit(socket(os.Args[1:]))
	}
	if work := os.Getenv(tryEnv); work != "" {
		err := Capable()
		if err == nil {
			err = Try(context.Background(), work)
		}
		if err == nil {
			err = fmt.Errorf("capable")
		}
		fmt.Println(err)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// socket asks for a socket of a family, or a pair of them, and returns 0 where the kernel has
// the family: of most it makes no pairs, which is another error.
func socket(args []string) (code int) {
	family, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET} {
		if len(args) == 1 {
			_, err = unix.Socket(family, kind, 0)
		} else {
			_, err = unix.Socketpair(family, kind, 0)
		}
		if err == nil || len(args) > 1 && err != unix.EAFNOSUPPORT {
			return 0
		}
	}
	return 1
}
