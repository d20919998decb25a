// SPDX-License-Identifier: Apache-2.0

// Package metrics says in Prometheus' text format what a node knows about itself.
//
// One row of one table is one series; docs/metrics.md is held to it by a test. What
// is one of several states is one series a state, of which one is 1. The format is
// written by hand: it is three kinds of lines, and the client library would cost the
// agent 3.4 MB. Package metrics does not read the system: bootagent/node gives it
// the facts, and says when they are counted and published.
package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/spec/rules"
)

// Facts holds the values that the series are made of.
type Facts struct {
	Now         time.Time
	Status      *spec.Status
	Maintenance *spec.Maintenance // of the overlay; nil where there is none
	Counts      record.Counts
}

// Family is a row of the table: a metric and its labels.
type Family struct {
	Name   string
	Type   string // gauge or counter
	Labels []string
	Help   string

	collect func(f *Facts, put put)
}

// put adds one series; labels are in the order of the row's.
type put func(value float64, labels ...string)

// Text returns all series. A row without one is left out.
func Text(f *Facts) []byte {
	var out bytes.Buffer
	for _, row := range table {
		head := fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", row.Name, helpText.Replace(row.Help), row.Name, row.Type)
		row.collect(f, func(value float64, labels ...string) {
			out.WriteString(head)
			head = ""
			out.WriteString(row.Name)
			for i, l := range labels {
				fmt.Fprintf(&out, `%c%s="%s"`, "{,"[min(i, 1)], row.Labels[i], labelText.Replace(strings.ToValidUTF8(l, "?")))
			}
			if len(labels) > 0 {
				out.WriteString("}")
			}
			out.WriteString(" " + strconv.FormatFloat(value, 'f', -1, 64) + "\n")
		})
	}
	return out.Bytes()
}

// What has to be escaped, see https://prometheus.io/docs/instrumenting/exposition_formats.
var (
	helpText  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelText = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// at puts a time, where it is known.
func at(put put, t time.Time, labels ...string) {
	if !t.IsZero() {
		put(float64(t.Unix()), labels...)
	}
}

// oneOf puts one series for each of the states, and for one that is not among them.
func oneOf(put put, is string, states []string, labels ...string) {
	known := false
	for _, s := range states {
		put(boolean(s == is), append(labels[:len(labels):len(labels)], s)...)
		known = known || s == is
	}
	if !known {
		put(1, append(labels[:len(labels):len(labels)], is)...)
	}
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// CountCorrections counts settings that were found changed and are right again. What
// the last look found was counted then.
func CountCorrections(c *record.Counts, changes, last []spec.Drift) {
	for _, d := range changes {
		add(&c.Corrections, d.Item)
		if !has(last, d) {
			add(&c.Drift, d.Item)
		}
	}
}

// CountDrift counts what a look found that the last one had not.
func CountDrift(c *record.Counts, found, last []spec.Drift) {
	for _, d := range found {
		switch d.Action {
		case spec.ActionDefer, spec.ActionCannot, spec.ActionRefuse, spec.ActionFailed, spec.ActionRun:
		default:
			if !has(last, d) {
				add(&c.Drift, d.Item)
			}
		}
	}
}

// NoteArtifacts notes what runs, and since when.
func NoteArtifacts(c *record.Counts, st *spec.Status, now time.Time) {
	for slot, digest := range map[string]string{"overlay": st.Overlay, "layer": st.Layer} {
		if digest == "" || c.Artifacts[slot].Digest == digest {
			continue
		}
		if c.Artifacts == nil {
			c.Artifacts = map[string]record.Artifact{}
		}
		c.Artifacts[slot] = record.Artifact{Digest: digest, Since: now.Unix()}
	}
}

// CountTransition counts a decision that changed something.
func CountTransition(c *record.Counts, name string) { add(&c.Transitions, name) }

// CountFetch counts how the registry answered: err is the result of asking it.
func CountFetch(c *record.Counts, err error, now time.Time) {
	switch {
	case err == nil:
		c.Verified = now.Unix()
		add(&c.Fetches, "ok")
	case refusal.Of(err) != "":
		add(&c.Fetches, "refused")
	default:
		add(&c.Fetches, "unreachable")
	}
}

func has(list []spec.Drift, d spec.Drift) bool {
	return slices.ContainsFunc(list, func(e spec.Drift) bool { return e.Item == d.Item && e.Key == d.Key })
}

func add(to *map[string]uint64, key string) {
	if *to == nil {
		*to = map[string]uint64{}
	}
	(*to)[key]++
}

// Server answers GET /metrics on an address of the loopback interface, and nothing
// else. Its zero value with Read set answers nowhere yet.
type Server struct {
	Read func() ([]byte, error) // the text to answer with

	address string
	stop    func()
}

// Listen answers on an address from now on, and no longer on the one before; "" is
// nowhere. It is for one goroutine at a time.
func (s *Server) Listen(address string) error {
	if address == s.address {
		return nil
	}
	s.Close()
	if address == "" {
		return nil
	}
	l, err := listen(address)
	if err != nil {
		return fmt.Errorf("listen for readers of metrics: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = httpserver.Serve(ctx, l, s, httpserver.Options{Conns: 16, PerClient: 16}) // it ends with the context
	}()
	s.address, s.stop = address, func() { cancel(); <-ended }
	return nil
}

// Close ends what is answered.
func (s *Server) Close() {
	if s.stop != nil {
		s.stop()
	}
	s.address, s.stop = "", nil
}

// listen refuses what others could reach, whatever the overlay says: the signature
// says who wrote it, not that it is wise.
func listen(address string) (net.Listener, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().Unmap().IsLoopback() {
		return nil, fmt.Errorf("%q is not an address of the loopback interface", address)
	}
	return net.Listen("tcp", at.String())
}

// ServeHTTP answers a request that names this machine as its host. A web page that
// had its name lead to 127.0.0.1 could read what others may not, otherwise.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !ownName(r.Host):
		http.Error(w, "ask by an address of this machine's loopback interface", http.StatusForbidden)
		return
	case r.URL.Path != "/metrics":
		http.NotFound(w, r)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		http.Error(w, "GET only", http.StatusMethodNotAllowed)
		return
	}
	text, err := s.Read()
	if err != nil {
		http.Error(w, "there are no metrics yet", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
}

func ownName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && a.Unmap().IsLoopback()
}

// Wanted returns where an overlay wants metrics: nowhere where it wants none, or wants
// them where they must not be, which is the error.
func Wanted(o *spec.Overlay) (spec.Metrics, error) {
	if o.Agent == nil || o.Agent.Metrics == nil {
		return spec.Metrics{}, nil
	}
	if err := rules.Metrics(*o.Agent.Metrics); err != nil {
		return spec.Metrics{}, fmt.Errorf("agent.metrics of the overlay: %w", err)
	}
	return *o.Agent.Metrics, nil
}

// Publish writes a text where it is wanted, and for the service, which answers at an
// address. root is the prefix of every path.
func Publish(root string, want spec.Metrics, text []byte) error {
	answered := filepath.Join(root, paths.RunMetrics)
	if want == (spec.Metrics{}) {
		return durable.Remove(answered)
	}
	err := durable.WriteFile(answered, text, 0o644)
	if want.File == "" {
		return err
	}
	fileErr := in(filepath.Join(root, want.File), func(dir safepath.Dir, name string) error {
		return dir.Put(name, safepath.Thing{Mode: unix.S_IFREG | 0o644, UID: os.Geteuid(), GID: os.Getegid(), Content: text})
	})
	if fileErr != nil {
		err = errors.Join(err, fmt.Errorf("write metrics to %s: %w", want.File, fileErr))
	}
	return err
}

// Withdraw removes the file that metrics were written to.
func Withdraw(root, file string) error {
	return fault.In(fault.But(in(filepath.Join(root, file), safepath.Dir.Remove), fs.ErrNotExist), "remove metrics from %s", file)
}

// in does something in the directory of a path, which may belong to who collects.
func in(path string, do func(dir safepath.Dir, name string) error) error {
	dir, err := safepath.Hold(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close() // what matters was synced
	return do(dir, filepath.Base(path))
}
