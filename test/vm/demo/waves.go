// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/caisson-os/caisson/test/freeport"
	"github.com/caisson-os/caisson/test/vm"
)

// waves is a second fleet: three hosts that exist already, each a namespace with files
// of its own and a real agent in it. It moves while the machines boot, since it waits
// more than it works, and says at the end what it did.
type waves struct {
	fleet *vm.Fleet
	says  bytes.Buffer
	page  string // address of its service
	took  time.Duration
	done  chan error
}

// host is a node: it changes its own /etc and /var, and no others. An agent asks its
// registry every five minutes; for the demo it is told to every five seconds.
const host = `set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
for at in /etc /var; do
	mkdir -p /mnt/up$at /mnt/work$at
	mount -t overlay overlay -o lowerdir=$at,upperdir=/mnt/up$at,workdir=/mnt/work$at $at
done
mount -t tmpfs tmpfs /run
rm -rf /etc/caisson /var/lib/caisson
hostname "$1"
tr -d - < /proc/sys/kernel/random/uuid > /etc/machine-id
caisson-agent enroll --from "$2" --fleet waves --key keys/operator.pub
caisson-agent run &
while sleep 5; do caisson-agent sync || true; done
`

const waveSite = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: waves}
registry: oci:out
attached: true
nodes:
  - {name: n1, labels: {rack: r1}}
  - {name: n2, labels: {rack: r2}}
  - {name: n3, labels: {rack: r2}}
machine:
  agent: {report: {url: "%s", interval: 10s}}
conf:
  files:
    motd: {path: /etc/motd, content: "October\n"}
---
apiVersion: caisson.dev/v1alpha1
kind: Rollout
metadata: {name: racks}
spec: {waves: [{hosts: [n1]}, {each: rack}], soak: 10s, deadline: 2m}
`

// badScript fails on every node that gets it.
const badScript = `November\n"}
  exec:
    look-at-disks:
      rerun_policy: once_successfully
      data: |
        #!/bin/sh
        echo /dev/sdz does not answer >&2; exit 1
`

// begin starts the fleet and leaves it to itself.
func begin(ctx context.Context, dir, bin string) *waves {
	w := &waves{done: make(chan error, 1)}
	w.fleet = &vm.Fleet{Dir: dir, Bin: bin, Show: &w.says}
	go func() {
		begun := time.Now()
		err := w.move(ctx)
		w.took = time.Since(begun)
		w.done <- err
	}()
	return w
}

func (w *waves) move(ctx context.Context) error {
	if err := w.start(ctx); err != nil {
		return err
	}
	fmt.Fprintf(&w.says, "\n# one good rollout: n1, then rack r2\n")
	if err := w.roll(ctx, `October\n"}`, `All Saints\n"}`); err != nil {
		return err
	}
	if err := w.caisson(ctx, "fleet", "status", "--at", w.page); err != nil {
		return err
	}
	fmt.Fprintf(&w.says, "\n# and one with a script that fails: it halts after the first wave, and n1 goes back\n")
	var ended *exec.ExitError
	switch err := w.roll(ctx, `All Saints\n"}`, badScript); {
	case err == nil:
		return errors.New("the second rollout went on to its end")
	case !errors.As(err, &ended) || ended.ExitCode() != 3:
		return err
	}
	if err := w.fine(ctx); err != nil {
		return err
	}
	return w.caisson(ctx, "rollout", "status", "oci:out", "racks", "--site", "site.yaml")
}

// start publishes the fleet, and starts its registry, its service and its nodes.
func (w *waves) start(ctx context.Context) error {
	if err := os.Mkdir(w.fleet.Dir, 0o755); err != nil {
		return err
	}
	if err := w.caisson(ctx, "init", "."); err != nil {
		return err
	}
	address, _, err := freeport.Hold()
	if err != nil {
		return err
	}
	w.page = "http://" + address
	if err := os.WriteFile(filepath.Join(w.fleet.Dir, "site.yaml"), fmt.Appendf(nil, waveSite, w.page), 0o644); err != nil {
		return err
	}
	if err := w.caisson(ctx, "publish", "site.yaml", "--to", "oci:out", "--key", "keys/operator.key"); err != nil {
		return err
	}
	registry, err := w.fleet.Server(ctx, "serve", "oci:out", "--listen", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if _, err := w.fleet.Server(ctx, "fleet", "serve", "--from", registry, "--site", "site.yaml", "--listen", address); err != nil {
		return err
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		if err := w.node(ctx, name, registry); err != nil {
			return err
		}
	}
	return w.fine(ctx)
}

func (w *waves) node(ctx context.Context, name, registry string) error {
	log, err := os.Create(filepath.Join(w.fleet.Dir, name+".log"))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", host, "sh", name, registry)
	cmd.Dir, cmd.Stdout, cmd.Stderr = w.fleet.Dir, log, log
	cmd.Env = append(os.Environ(), "PATH="+w.fleet.Bin+":"+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, log.Close())
	}
	go func() {
		_ = cmd.Wait()  // it ends by our signal
		_ = log.Close() // for who looks
	}()
	return nil
}

// roll changes the site and moves it in waves.
func (w *waves) roll(ctx context.Context, from, to string) error {
	if err := change(filepath.Join(w.fleet.Dir, "site.yaml"), from, to); err != nil {
		return err
	}
	if err := w.caisson(ctx, "rollout", "start", "racks", "site.yaml", "--key", "keys/operator.key", "--reason", "demo"); err != nil {
		return err
	}
	return w.caisson(ctx, "rollout", "run", "racks", "site.yaml", "--key", "keys/operator.key", "--at", w.page)
}

// fine waits until all nodes report that they are what they should be.
func (w *waves) fine(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		quiet := *w.fleet
		quiet.Show = new(bytes.Buffer)
		out, err := quiet.Caisson(ctx, "fleet", "status", "--at", w.page)
		if err == nil && strings.Contains(out, "3  fine") {
			w.says.WriteString(out)
			return nil
		}
		select {
		case <-ctx.Done():
			said, _ := os.ReadFile(filepath.Join(w.fleet.Dir, "n1.log")) // it may say why, where it can be read
			return fmt.Errorf("the fleet does not become fine: %w\n%s\nn1 says:\n%.2000s", errors.Join(ctx.Err(), err), out, said)
		case <-time.After(time.Second):
		}
	}
}

func (w *waves) caisson(ctx context.Context, args ...string) error {
	out, err := w.fleet.Caisson(ctx, args...)
	w.says.WriteString(out)
	return err
}

// waves waits for the second fleet, and prints what it did.
func (d *demo) waves(context.Context) error {
	err := <-d.second.done
	say("meanwhile three hosts, each with an agent of its own, moved in waves by what they report; that took %.0fs", d.second.took.Seconds())
	fmt.Print(d.second.says.String())
	if err != nil {
		return err
	}
	fmt.Printf("\n# the fleet's page: %s (make demo KEEP=1 leaves it up)\n", d.second.page)
	return nil
}
