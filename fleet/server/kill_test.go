// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// What this program is started as: a service with a database and so many nodes, or a
// registry of a layout.
const (
	childDB     = "CAISSON_TEST_FLEET_DB"
	childNodes  = "CAISSON_TEST_FLEET_NODES"
	childLayout = "CAISSON_TEST_LAYOUT"
)

func TestMain(m *testing.M) {
	if db := os.Getenv(childDB); db != "" {
		fmt.Fprintln(os.Stderr, serveChild(db, os.Getenv(childNodes)))
		os.Exit(1)
	}
	if dir := os.Getenv(childLayout); dir != "" {
		fmt.Fprintln(os.Stderr, serveLayout(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func serveChild(name, nodes string) error {
	n, err := strconv.Atoi(nodes)
	if err != nil {
		return err
	}
	ctx := context.Background()
	db, err := store.Open(ctx, name)
	if err != nil {
		return err
	}
	h, err := hub.Open(ctx, hub.Options{Store: db, Say: func(string, ...any) {}, Index: func(context.Context, string) (hub.Published, error) {
		return hub.Published{Fleet: "metal", Root: "r", Rows: childRows(n)}, nil
	}})
	if err != nil {
		return err
	}
	handler, err := New(ctx, Options{Fleet: query.Fleet{Hub: h}, Hosts: []string{"127.0.0.1"}, Names: func() query.Names { return query.Names{} }, Say: func(string, ...any) {}})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	go func() { fmt.Fprintln(os.Stderr, h.Run(ctx)) }()
	return httpserver.Serve(ctx, l, handler, httpserver.Options{Knows: true})
}

const killNodes = 8

func childRows(n int) index.Rows {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprint("n", i))
	}
	return rowsOf(names...)
}

// startChild starts a service and returns where it is.
func startChild(t testing.TB, settings ...string) (*exec.Cmd, string) {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), settings...)
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() }) // it is killed already, or the test failed
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = c.Wait() // it ended
		t.Fatalf("the service does not start: %v\n%s", err, said.String())
	}
	return c, strings.TrimSpace(line)
}

// TestKilled kills the service by SIGKILL while nodes report: what was acknowledged is
// there when it is started again.
func TestKilled(t *testing.T) { killed(t, 4) }

func TestLongKilled(t *testing.T) {
	require.Long(t)
	killed(t, 50)
}

func killed(t *testing.T, times int) {
	db := "sqlite:" + filepath.Join(t.TempDir(), "fleet.db")
	acknowledged := make([]atomic.Uint64, killNodes)
	next := uint64(1)
	for round := range times {
		service, at := startChild(t, childDB+"="+db, fmt.Sprint(childNodes, "=", killNodes))
		for i := range acknowledged {
			seq := acknowledged[i].Load()
			if seq == 0 {
				continue
			}
			resp, err := http.Get(fmt.Sprintf("%s/v1/nodes/n%d", at, i))
			if err != nil {
				t.Fatal(err)
			}
			var d struct{ Report *spec.Report }
			err = json.NewDecoder(resp.Body).Decode(&d)
			resp.Body.Close()
			if err != nil || d.Report == nil || d.Report.Seq < seq {
				t.Fatalf("kill %d: report %d of n%d was acknowledged, the service has %+v (%v)", round, seq, i, d.Report, err)
			}
		}
		next += 1 << 20
		var nodes sync.WaitGroup
		stop := make(chan struct{})
		for i := range killNodes {
			nodes.Go(func() {
				for seq := next; ; seq++ {
					select {
					case <-stop:
						return
					default:
					}
					resp, err := http.Post(at+"/v1/report", "application/json", bytes.NewReader(sealed(t, killKey(t, i), fmt.Sprint("n", i), seq, nil)))
					if err != nil {
						return // it was killed
					}
					resp.Body.Close()
					if resp.StatusCode == http.StatusNoContent {
						acknowledged[i].Store(seq)
					} else if resp.StatusCode != http.StatusTooManyRequests {
						t.Errorf("report: %d", resp.StatusCode)
						return
					}
				}
			})
		}
		time.Sleep(30*time.Millisecond + rand.N(300*time.Millisecond))
		if round == times-1 { // on a slow machine nothing may have come so far before
			for end := time.Now().Add(5 * time.Minute); unheard(acknowledged) >= 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("no report of n%d was ever acknowledged", unheard(acknowledged))
				}
			}
		}
		if err := service.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = service.Wait() // it was killed
		close(stop)
		nodes.Wait()
	}
}

// unheard is a node of which no report was acknowledged yet, or -1.
func unheard(acknowledged []atomic.Uint64) int {
	for i := range acknowledged {
		if acknowledged[i].Load() == 0 {
			return i
		}
	}
	return -1
}
