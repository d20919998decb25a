// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"golang.org/x/crypto/ssh"

	"github.com/caisson-os/caisson/internal/machine"
)

// Where a guest finds the servers of 127.0.0.1.
const (
	guestRegistry = "10.0.2.100:5000"
	guestHTTP     = "10.0.2.101:8080"
)

// Fleet is a working directory with a site in it, the programs, and the servers that
// its machines boot from. It drives the programs as a user would.
type Fleet struct {
	Dir      string     // working directory; site.yaml, keys, out and netboot are in it
	Bin      string     // directory of the programs
	Registry string     // host:port/prefix of a registry server; empty is the layout Dir/out, served by us
	Key      ssh.Signer // of the site's user "admin"
	Show     io.Writer  // gets each command line and what it prints on standard error

	arch           string // of its machines; empty: amd64
	registry, http string // addresses on 127.0.0.1
}

// UseExample makes an example's site the fleet's own, with the files that it names and a fresh
// SSH key in place of the example's.
func (f *Fleet) UseExample(example string) error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	if f.Key, err = ssh.NewSignerFromKey(private); err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(private, "demo")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(f.Dir, "id_ed25519"), pem.EncodeToMemory(block), 0o600); err != nil {
		return err
	}
	site, err := os.ReadFile(example)
	if err != nil {
		return err
	}
	const files = "files"
	err = os.CopyFS(filepath.Join(f.Dir, files), os.DirFS(filepath.Join(filepath.Dir(example), files)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	sshPublic, err := ssh.NewPublicKey(public)
	if err != nil {
		return err
	}
	mine := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(sshPublic))) + " demo"
	lines := strings.Split(string(site), "\n")
	for i, line := range lines {
		if before, _, ok := strings.Cut(line, "- ssh-ed25519 "); ok {
			lines[i] = before + "- " + mine
		}
	}
	return os.WriteFile(filepath.Join(f.Dir, "site.yaml"), []byte(strings.Join(lines, "\n")), 0o644)
}

// To is where layers and overlays are pushed.
func (f *Fleet) To() string {
	if f.Registry != "" {
		return f.Registry
	}
	return "oci:out"
}

// guest is the same place as a machine names it.
func (f *Fleet) guest() string {
	if f.Registry == "" {
		return guestRegistry + "/demo" // a layout is served below any prefix
	}
	_, prefix, _ := strings.Cut(f.Registry, "/")
	return strings.TrimSuffix(guestRegistry+"/"+prefix, "/")
}

// Caisson runs "caisson" with args in the working directory and returns its standard
// output. What it says on standard error is shown, and is part of the error.
func (f *Fleet) Caisson(ctx context.Context, args ...string) (string, error) {
	fmt.Fprintf(f.Show, "$ caisson %s\n", strings.Join(args, " "))
	var out, talk bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(f.Bin, "caisson"), args...)
	cmd.Dir = f.Dir
	cmd.Stdout = &out
	cmd.Stderr = io.MultiWriter(&talk, f.Show)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("caisson %s: %w\n%s%s", strings.Join(args, " "), err, talk.String(), out.String())
	}
	return out.String(), nil
}

// Serve starts the servers that machines boot from, until ctx ends: the registry,
// unless there is one, and the directory of the network boot.
func (f *Fleet) Serve(ctx context.Context) (err error) {
	if f.registry, _, _ = strings.Cut(f.Registry, "/"); f.Registry == "" {
		if f.registry, err = f.Server(ctx, "serve", "oci:out", "--listen", "127.0.0.1:0"); err != nil {
			return err
		}
	}
	f.http, err = f.Server(ctx, "netboot", "serve", "netboot", "--http", "127.0.0.1:0", "--tftp", "")
	return err
}

var loopback = regexp.MustCompile(`127\.\d+\.\d+\.\d+:\d+`)

// Server starts a verb that serves, and returns the address that it prints first.
func (f *Fleet) Server(ctx context.Context, args ...string) (string, error) {
	fmt.Fprintf(f.Show, "$ caisson %s &\n", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, filepath.Join(f.Bin, "caisson"), args...)
	cmd.Dir = f.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	talk, said, err := os.Pipe() // some print the address as their result, some as a message
	if err != nil {
		return "", err
	}
	cmd.Stdout, cmd.Stderr = said, said
	if err := errors.Join(cmd.Start(), said.Close()); err != nil {
		return "", errors.Join(err, talk.Close())
	}
	lines := bufio.NewScanner(talk)
	for lines.Scan() {
		if at := loopback.FindString(lines.Text()); at != "" {
			go func() {
				_, _ = io.Copy(io.Discard, talk) // a full pipe would stop it
				_ = cmd.Wait()                   // it ends by our signal
				_ = talk.Close()                 // it was only read
			}()
			return at, nil
		}
		fmt.Fprintln(f.Show, lines.Text())
	}
	return "", fmt.Errorf("caisson %s: %w", strings.Join(args, " "), cmd.Wait())
}

// Netboot writes the directory that a loader boots from.
func (f *Fleet) Netboot(ctx context.Context) error {
	_, err := f.Caisson(ctx, "netboot", "site.yaml", "--from", f.To(), "--out", "netboot",
		"--registry", f.guest(), "--registry-plain-http", "--http-url", "http://"+guestHTTP)
	return err
}

// Boot starts a machine of the fleet by PXE. It has its forwards, and those to what it boots
// from.
func (f *Fleet) Boot(ctx context.Context, o machine.Options) (*machine.Machine, error) {
	o.TFTP, o.Bootfile = filepath.Join(f.Dir, "netboot"), "boot.ipxe"
	forwards := map[string]string{guestRegistry: f.registry, guestHTTP: f.http}
	maps.Copy(forwards, o.Forwards)
	o.Forwards = forwards
	return f.Start(ctx, o)
}

// Start starts a machine with its console in the working directory.
func (f *Fleet) Start(ctx context.Context, o machine.Options) (*machine.Machine, error) {
	log, err := os.Create(filepath.Join(f.Dir, o.Name+".console"))
	if err != nil {
		return nil, err
	}
	o.Log = log
	m, err := machine.Start(ctx, o)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go func() {
		<-m.Done()
		_ = log.Close() // a copy of what the machine holds
	}()
	return m, nil
}
