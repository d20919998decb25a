// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"crypto/ecdsa"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// BenchmarkManyNodes is a service whose fleet has 100,000 nodes, or as many as CAISSON_NODES says, all of
// which have reported: how long it takes to start again, what it has in memory, and how long a page takes
// while 350 reports come in each second, which is what 105,000 nodes send.
func BenchmarkManyNodes(b *testing.B) {
	nodes := 100_000
	if s := os.Getenv("CAISSON_NODES"); s != "" {
		var err error
		if nodes, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	keys := make([]*ecdsa.PrivateKey, nodes)
	for i := range keys {
		keys[i] = newKey(b)
	}
	settings := []string{childDB + "=sqlite:" + b.TempDir() + "/fleet.db", fmt.Sprint(childNodes, "=", nodes)}
	c, at := startChild(b, settings...)
	clients := from(places)
	var senders sync.WaitGroup
	for w := range places {
		senders.Go(func() {
			for i := w; i < nodes; i += places {
				reports(b, clients[w], at, keys[i], i, 1)
			}
		})
	}
	if senders.Wait(); b.Failed() {
		return
	}
	_ = c.Process.Kill() // a service that dies starts as one that was stopped
	_ = c.Wait()         // it was killed

	began := time.Now()
	c, at = startChild(b, settings...)
	see(b, at, "/healthz")
	started := time.Since(began)
	stop := make(chan struct{})
	senders.Go(func() {
		tick := time.NewTicker(time.Second / 350)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				senders.Go(func() { reports(b, clients[i%places], at, keys[i%nodes], i%nodes, uint64(2+i/nodes)) })
			}
		}
	})
	for b.Loop() {
		for name, path := range map[string]string{"all": "/", "nodes": "/nodes", "found": "/nodes?q=n5000", "trouble": "/nodes?condition=trouble", "node": "/nodes/n7"} {
			took := make([]time.Duration, 20)
			for i := range took {
				began := time.Now()
				see(b, at, path)
				took[i] = time.Since(began)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-"+name)
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "ms-at-most-"+name)
		}
	}
	close(stop)
	senders.Wait()
	b.ReportMetric(started.Seconds(), "s-start")
	b.ReportMetric(mostMemory(b, c.Process.Pid), "MiB-at-most")
	b.ReportMetric(0, "ns/op") // pages' own
}

// places is how many addresses nodes report from: from one the service takes a share alone.
const places = 250

// from returns a client for each of some addresses.
func from(places int) []*http.Client {
	list := make([]*http.Client, places)
	for i := range list {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i))}}
		list[i] = &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: d.DialContext}}
	}
	return list
}

// reports sends what a node reports.
func reports(b *testing.B, client *http.Client, at string, key *ecdsa.PrivateKey, i int, seq uint64) {
	resp, err := client.Post(at+"/v1/report", "application/json", bytes.NewReader(sealed(b, key, fmt.Sprint("n", i), seq, nil)))
	if err != nil {
		b.Error(err)
		return
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		b.Errorf("node %d, report %d: %s", i, seq, resp.Status)
	}
}

// see gets a page to its end.
func see(b *testing.B, at, path string) {
	b.Helper()
	resp, err := http.Get(at + path)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		b.Fatal(path, resp.Status, err)
	}
}
