// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/test/registrytest"
)

// A fleet that polls, with its time run faster: each node once, at a time of its own.
const (
	pollers = 10_000
	every   = 5 * time.Minute
	atMost  = 5000 // connections that the bench itself has
)

// BenchmarkTenThousandNodes has 10,000 nodes ask within 10 s, or report within 30, what
// they do within 5 minutes, each by a connection of its own from one of 250 addresses: `caisson serve`
// for their overlay, which is still the same, beside docker-registry; and the fleet's
// service with a report, beside a server that answers without a look, for there is no
// other such service to compare with.
func BenchmarkTenThousandNodes(b *testing.B) {
	layout, tag := b.TempDir(), func(i int) string { return fmt.Sprint("n", i%100) }
	peer, peerPID := registrytest.Measured(b)
	etags := fillForPolls(b, "oci:"+layout, tag)
	fillForPolls(b, peer+"/fleet", tag)
	ours, at := startChild(b, childLayout+"="+layout)
	poll := func(i int) string {
		return fmt.Sprintf("GET /v2/fleet/node/manifests/%s HTTP/1.1\r\nHost: x\r\nAccept: %s\r\nIf-None-Match: \"%s\"\r\n\r\n", tag(i), oci.MediaTypeManifest, etags[tag(i)])
	}
	var bare float64
	b.Run("docker-registry", func(b *testing.B) { bare = nodesAsk(b, peer, peerPID, 30, 0, 0, http.StatusNotModified, poll) })
	b.Run("caisson serve", func(b *testing.B) {
		nodesAsk(b, strings.TrimPrefix(at, "http://"), ours.Process.Pid, 30, 0, bare, http.StatusNotModified, poll)
	})
	b.Run("caisson serve, to clients that keep their connection a minute", func(b *testing.B) {
		nodesAsk(b, strings.TrimPrefix(at, "http://"), ours.Process.Pid, 30, time.Minute, bare, http.StatusNotModified, poll)
	})
	b.Run("a bare server", func(b *testing.B) {
		c, at := startChild(b, childLayout+"=-")
		bare = nodesAsk(b, strings.TrimPrefix(at, "http://"), c.Process.Pid, 10, 0, 0, http.StatusNoContent, aReport(b, 1))
	})
	b.Run("caisson fleet serve", func(b *testing.B) {
		db := b.TempDir() + "/fleet.db"
		c, at := startChild(b, childDB+"=sqlite:"+db, fmt.Sprint(childNodes, "=", pollers))
		nodesAsk(b, strings.TrimPrefix(at, "http://"), c.Process.Pid, 10, 0, bare, http.StatusNoContent, aReport(b, 1))
		var size int64
		for _, name := range []string{db, db + "-wal"} {
			if info, err := os.Stat(name); err == nil { // the log is there while it is used
				size += info.Size()
			}
		}
		b.ReportMetric(float64(size)/1e6, "MB-database")
	})
}

// aReport returns what a node sends.
func aReport(b *testing.B, seq uint64) func(i int) string {
	all := make([]string, pollers)
	for i := range all {
		raw := sealed(b, killKey(b, i), fmt.Sprint("n", i), seq, nil)
		all[i] = fmt.Sprintf("POST /v1/report HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(raw), raw)
	}
	return func(i int) string { return all[i] }
}

// fillForPolls brings overlays to a registry, and returns their digests by tag.
func fillForPolls(b *testing.B, ref string, tag func(int) string) map[string]string {
	b.Helper()
	r, err := registry.Open(ref, registry.Options{PlainHTTP: true})
	if err != nil {
		b.Fatal(err)
	}
	out := map[string]string{}
	for i := range 100 {
		raw, blobs := oci.OverlayManifest(fmt.Append(nil, i), []byte(`{"bundle":"x"}`))
		for _, d := range blobs {
			if err := r.PutData(b.Context(), "node", d); err != nil {
				b.Fatal(err)
			}
		}
		if out[tag(i)], err = r.PutManifest(b.Context(), "node", oci.MediaTypeManifest, raw, tag(i)); err != nil {
			b.Fatal(err)
		}
	}
	return out
}

// serveLayout is caisson serve; of "-" a server that answers without a look.
func serveLayout(dir string) error {
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body) // as much as came
		w.WriteHeader(http.StatusNoContent)
	})
	var err error
	if dir != "-" {
		if h, err = registry.Handler(dir); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	return httpserver.Serve(context.Background(), l, h, httpserver.Options{})
}

// nodesAsk has each node ask once and returns what a request cost the server's process,
// in microseconds of processor time.
func nodesAsk(b *testing.B, at string, pid int, faster, keep time.Duration, peer float64, want int, request func(i int) string) (cost float64) {
	b.Helper()
	var took []time.Duration
	refused := 0
	before := processTime(b, pid)
	for range b.N {
		times, no := nodesAskOnce(b, at, every/faster, keep/faster, want, request)
		took, refused = append(took, times...), refused+no
	}
	cost = float64((processTime(b, pid) - before).Microseconds()) / float64(len(took))
	slices.Sort(took)
	b.ReportMetric(cost, "processor-µs/request")
	b.ReportMetric(cost*pollers/every.Seconds()/1e6/2*100, "%of2cores")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")
	b.ReportMetric(float64(refused)/float64(b.N), "refused")
	b.ReportMetric(mostMemory(b, pid), "MiB-at-most")
	b.ReportMetric(0, "ns/op") // the arrivals' own
	if peer > 0 {
		b.ReportMetric(cost/peer, "×peer")
	}
	return cost
}

// mostMemory is what a process had at its peak, see proc_pid_status(5).
func mostMemory(b *testing.B, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, line, _ := strings.Cut(string(text), "VmHWM:")
	var kib float64
	if _, err := fmt.Sscan(line, &kib); err != nil {
		b.Fatal(err)
	}
	return kib / 1024
}

func nodesAskOnce(b *testing.B, at string, within, keep time.Duration, want int, request func(i int) string) (took []time.Duration, refused int) {
	b.Helper()
	took = make([]time.Duration, pollers)
	when := make([]time.Duration, pollers)
	for i := range when {
		when[i] = rand.N(within)
	}
	order := make([]int, pollers)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(when[a] - when[b]) })
	var no atomic.Int64
	places := make(chan struct{}, atMost)
	var nodes sync.WaitGroup
	began := time.Now()
	for _, i := range order {
		time.Sleep(time.Until(began.Add(when[i])))
		places <- struct{}{}
		nodes.Go(func() {
			defer func() { <-places }()
			asked := time.Now()
			c, status, err := askOnce(i, at, request(i))
			took[i] = time.Since(asked)
			if err != nil { // on a machine that is busy elsewhere the peer, too, refuses some
				no.Add(1)
				return
			}
			if status != want {
				b.Errorf("node %d: %d", i, status)
			}
			time.Sleep(keep)
			_ = c.Close() // it was answered
		})
	}
	nodes.Wait()
	return took, int(no.Load())
}

// askOnce asks by a new connection, which stays open.
func askOnce(i int, at, request string) (c net.Conn, status int, err error) {
	d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%250))}}
	if c, err = d.Dial("tcp", at); err != nil {
		return nil, 0, err
	}
	if err = c.SetDeadline(time.Now().Add(2 * time.Minute)); err == nil {
		_, err = io.WriteString(c, request)
	}
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(bufio.NewReaderSize(c, 1024), nil)
	}
	if err != nil {
		_ = c.Close() // err says more
		return nil, 0, err
	}
	return c, resp.StatusCode, nil
}

// processTime is what a process has used of the processors, by proc_pid_stat(5).
func processTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	words := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	user, err1 := strconv.ParseInt(words[11], 10, 64)
	system, err2 := strconv.ParseInt(words[12], 10, 64)
	if err1 != nil || err2 != nil {
		b.Fatal(err1, err2)
	}
	return time.Duration(user+system) * time.Second / 100 // USER_HZ
}
