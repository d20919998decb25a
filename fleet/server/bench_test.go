// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"crypto/ecdsa"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// killKey is one key a node for the life of a test's process.
func killKey(t testing.TB, i int) *ecdsa.PrivateKey {
	nodeKeys.Lock()
	defer nodeKeys.Unlock()
	for len(nodeKeys.list) <= i {
		nodeKeys.list = append(nodeKeys.list, newKey(t))
	}
	return nodeKeys.list[i]
}

var nodeKeys struct {
	sync.Mutex
	list []*ecdsa.PrivateKey
}

// BenchmarkReports is how many reports a second are verified, judged and on the disk,
// beside raw INSERTs of the same bytes, as many in a transaction as waited together.
func BenchmarkReports(b *testing.B) {
	const nodes, at = 1024, 512 // a fleet sends from many machines at once
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
	}
	s := newSite(b, rowsOf(names...), false)
	reports := make([][]byte, b.N)
	for i := range reports {
		reports[i] = sealed(b, killKey(b, i%nodes), names[i%nodes], uint64(i/nodes+1), nil)
	}
	began, busy := time.Now(), processorTime(b)
	b.ResetTimer()
	var workers sync.WaitGroup
	for w := range at {
		workers.Go(func() { // each worker has its nodes: their reports come one after another
			for i := w; i < b.N; i += at {
				if err := s.take(b.Context(), reports[i]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
	b.StopTimer()
	ours := time.Since(began)
	b.ReportMetric(float64((processorTime(b)-busy).Microseconds())/float64(b.N), "processor-µs/report") // the same on a busy machine
	batch := max(1, b.N/int(max(1, s.hub.Stats().Batches.Load())))
	raw := rawInserts(b, reports, batch)
	b.ReportMetric(float64(b.N)/ours.Seconds(), "reports/s")
	b.ReportMetric(ours.Seconds()/raw.Seconds(), "×raw")
	b.ReportMetric(float64(batch), "reports/commit")
}

// processorTime is what this process has used of the processors.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func rawInserts(b *testing.B, rows [][]byte, batch int) time.Duration {
	b.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "raw.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close() // it is a measure only
	if _, err := db.Exec("CREATE TABLE raw (id INTEGER PRIMARY KEY, report TEXT)"); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	for from := 0; from < len(rows); from += batch {
		tx, err := db.Begin()
		if err != nil {
			b.Fatal(err)
		}
		for _, row := range rows[from:min(len(rows), from+batch)] {
			if _, err := tx.Exec("INSERT INTO raw (report) VALUES ($1)", string(row)); err != nil {
				b.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(began)
}

// BenchmarkPage is how long a page takes over a fleet, as a browser gets it, beside a
// request that is answered at once.
func BenchmarkPage(b *testing.B) {
	for _, nodes := range []int{10_000, 100_000} {
		names := make([]string, nodes)
		var site strings.Builder
		site.WriteString("apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal}\nnodes:\n")
		for i := range names {
			names[i] = fmt.Sprintf("rack%04d-n%d", i/8, i%8)
			fmt.Fprintf(&site, "- {name: %s, labels: {rack: r%04d, role: %s}}\n", names[i], i/8, []string{"compute", "storage"}[i%2])
		}
		site.WriteString("---\napiVersion: caisson.dev/v1alpha1\nkind: NodeSet\nmetadata: {name: storage}\nspec: {match: {labels: {role: storage}}}\n")
		s := newSite(b, rowsOf(names...), false)
		paths := []string{"/", "/nodes", "/nodes?q=rack0003", "/nodes?condition=trouble", "/nodes/rack0000-n0", "/metrics"}
		if nodes <= 10_000 { // larger sites take long to read
			s.knows(site.String())
			paths = append(paths, "/nodes?label=rack%3Dr0003", "/nodes?set=storage", "/nodes?set=storage&label=role%3Dstorage&q=rack0003")
		}
		key := newKey(b)
		if err := s.take(b.Context(), sealed(b, key, names[0], 1, nil)); err != nil {
			b.Fatal(err)
		}
		get := func(b *testing.B, path string) {
			resp, err := http.Get(s.url + path)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
				b.Fatal(resp.StatusCode, err)
			}
			resp.Body.Close()
		}
		for _, path := range paths {
			b.Run(fmt.Sprint(nodes, " nodes", path), func(b *testing.B) {
				began := time.Now()
				for range 200 {
					get(b, "/healthz")
				}
				bare := time.Since(began) / 200
				b.ResetTimer()
				for b.Loop() {
					get(b, path)
				}
				b.ReportMetric(float64(b.Elapsed())/float64(b.N)/float64(bare), "×bare")
			})
		}
	}
}

// TestLargeBody: a body without an end costs no more than a report.
func TestLargeBody(t *testing.T) {
	s := newSite(t, rowsOf("n1"), false)
	r, w := io.Pipe()
	go func() {
		for {
			if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<12)); err != nil {
				return
			}
		}
	}()
	defer r.Close()
	resp, err := http.Post(s.url+"/v1/report", "application/json", r)
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%d", resp.StatusCode)
		}
	}
}
