// SPDX-License-Identifier: Apache-2.0

// Package polls puts `caisson serve` beside docker-registry: 1,000 nodes ask at once, each by a
// connection of its own, whether their overlay is still the same, and it is.
package polls

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/test/peers/chart"
	"github.com/caisson-os/caisson/test/peers/debian"
	"github.com/caisson-os/caisson/test/peers/images"
)

const nodes = 1000

// life is one run of one peer.
type life struct {
	Peer      string  `json:"peer"`
	Version   string  `json:"version"`
	Seconds   float64 `json:"seconds"` // until the last node had its answer
	Processor float64 `json:"processorSeconds"`
	Memory    int64   `json:"peakKiB"`
}

// peer is a registry that runs in a root of Debian.
type peer struct {
	name    string
	version string
	at      string // an address of the loopback that is nobody else's
	fill    string // what is written to; "" is the registry itself
	args    []string
}

var peers = []peer{
	{name: "caisson", version: "/peer/caisson version", at: "127.0.45.1:5000", fill: "oci:",
		args: []string{"/peer/caisson", "serve", "oci:/peer/registry", "--listen", "127.0.45.1:5000", "--quiet"}},
	{name: "docker-registry", version: "dpkg-query --show docker-registry", at: "127.0.45.2:5000",
		args: []string{"/usr/bin/docker-registry", "serve", "/peer/registry.yml"}},
}

// Peers returns the names of all.
func Peers() (names []string) {
	for _, p := range peers {
		names = append(names, p.name)
	}
	return names
}

const config = `version: 0.1
log: {level: error, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: /peer/docker}}
http: {addr: "127.0.45.2:5000"}
`

// Run measures the peers of these names, all where there are none, and writes what it
// measured below out. work has caisson.
func Run(runs int, out, work string, names []string) (err error) {
	tar, err := images.Root()
	if err != nil {
		return err
	}
	root := filepath.Join(work, "root")
	remove, err := debian.Unpack(tar, root, "3g")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	program, err := os.ReadFile(filepath.Join(work, "caisson"))
	if err != nil {
		return err
	}
	dir := filepath.Join(root, "peer")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "caisson"), program, 0o755),
		os.WriteFile(filepath.Join(dir, "registry.yml"), []byte(config), 0o644)); err != nil {
		return err
	}
	var lives []life
	for range runs {
		for _, p := range peers {
			if len(names) > 0 && !slices.Contains(names, p.name) {
				continue
			}
			l, err := live(p, root)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			lives = append(lives, l)
		}
	}
	return chart.Write(out, "polls", lives, chart.Peers(lives, life.who), rows(lives))
}

// live starts one registry, fills it, and has all nodes ask.
func live(p peer, root string) (l life, err error) {
	version, _, err := debian.Run(root, nil, p.version)
	if err != nil {
		return l, err
	}
	l.Peer, l.Version = p.name, strings.TrimSpace(string(version))
	ref := p.at + "/fleet"
	etags := make([]string, 100)
	if p.fill != "" {
		ref = p.fill + filepath.Join(root, "peer/registry")
		if err := fill(ref, etags); err != nil {
			return l, err
		}
	}
	cmd := &exec.Cmd{Path: p.args[0], Args: p.args} // in the root
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Pdeathsig: syscall.SIGKILL}
	cmd.Dir, cmd.Env = "/", []string{"PATH=/usr/bin:/bin", "HOME=/root"}
	if err := cmd.Start(); err != nil {
		return l, err
	}
	asked := func() error {
		if err := listens(p.at); err != nil {
			return err
		}
		if p.fill == "" {
			if err := fill(ref, etags); err != nil {
				return err
			}
		}
		before, err := processor(cmd.Process.Pid)
		if err != nil {
			return err
		}
		begun := time.Now()
		if err := all(p.at, etags); err != nil {
			return err
		}
		l.Seconds = time.Since(begun).Seconds()
		after, err := processor(cmd.Process.Pid)
		if err != nil {
			return err
		}
		l.Processor = after - before
		l.Memory, err = most(cmd.Process.Pid)
		return err
	}()
	_ = cmd.Process.Kill() // it may have gone by itself
	_ = cmd.Wait()         // it was killed
	return l, asked
}

// fill writes an overlay for each tag, and keeps its digest.
func fill(ref string, etags []string) error {
	r, err := registry.Open(ref, registry.Options{PlainHTTP: true})
	if err != nil {
		return err
	}
	ctx := context.Background()
	for i := range etags {
		raw, blobs := oci.OverlayManifest(fmt.Append(nil, i), []byte(`{"bundle":"x"}`))
		for _, d := range blobs {
			if err := r.PutData(ctx, "node", d); err != nil {
				return err
			}
		}
		if etags[i], err = r.PutManifest(ctx, "node", oci.MediaTypeManifest, raw, fmt.Sprint("n", i)); err != nil {
			return err
		}
	}
	return nil
}

// listens waits until somebody listens.
func listens(at string) error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", at)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(end) {
			return err
		}
	}
}

// all has all nodes ask at once, four of each address.
func all(at string, etags []string) error {
	errs := make([]error, nodes)
	var asking sync.WaitGroup
	for i := range nodes {
		asking.Go(func() { errs[i] = ask(i, at, etags[i%len(etags)]) })
	}
	asking.Wait()
	return errors.Join(errs...)
}

func ask(i int, at, etag string) error {
	d := net.Dialer{Timeout: time.Minute, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 46, byte(1+i%250))}}
	c, err := d.Dial("tcp", at)
	if err != nil {
		return err
	}
	defer c.Close() // it was answered
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c, "GET /v2/fleet/node/manifests/n%d HTTP/1.1\r\nHost: x\r\nAccept: %s\r\nIf-None-Match: \"%s\"\r\n\r\n",
		i%100, oci.MediaTypeManifest, etag); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusNotModified {
		return fmt.Errorf("node %d: %s", i, resp.Status)
	}
	return nil
}

// processor returns the seconds that the threads of a process have used, by proc(5): schedstat counts
// nanoseconds where stat counts hundredths.
func processor(pid int) (seconds float64, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	for _, name := range threads {
		data, err := os.ReadFile(name)
		if err != nil {
			return 0, err
		}
		var on float64
		if _, err := fmt.Sscan(string(data), &on); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
		seconds += on / 1e9
	}
	return seconds, nil
}

// most returns the KiB of memory that a process had at its peak, by proc_pid_status(5).
func most(pid int) (kib int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, line, _ := strings.Cut(string(text), "VmHWM:")
	_, err = fmt.Sscan(line, &kib)
	return kib, err
}

// who is the peer of a run.
func (l life) who() chart.Peer { return chart.Peer{Name: l.Peer, Version: l.Version} }

// rows are what is shown.
func rows(lives []life) []chart.Row {
	return chart.Rows(lives, life.who, []chart.Kind[life]{
		{Name: "1,000 nodes at once", Unit: "s", Of: func(l life) float64 { return l.Seconds }},
		{Name: "processor, of all", Unit: "s", Of: func(l life) float64 { return l.Processor }},
		{Name: "peak memory", Unit: "MiB", Of: func(l life) float64 { return float64(l.Memory) / 1024 }},
	})
}
