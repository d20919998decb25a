// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// Key is a key with which a user logs in, and the file that ssh(1) reads it from.
type Key struct {
	File   string
	Signer ssh.Signer
}

// NewKey makes one, for this machine alone.
func NewKey(file string) (k Key, err error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return k, err
	}
	if k.Signer, err = ssh.NewSignerFromKey(private); err != nil {
		return k, err
	}
	block, err := ssh.MarshalPrivateKey(private, "caisson try")
	if err != nil {
		return k, err
	}
	k.File = file
	return k, os.WriteFile(file, pem.EncodeToMemory(block), 0o600)
}

// Login opens an SSH connection to the machine, and keeps trying until ctx ends or the
// machine does: sshd comes up some time during the boot.
func (m *Machine) Login(ctx context.Context, user string, key ssh.Signer) (*Session, error) {
	config := client(user, key)
	for {
		s, err := dial(ctx, m.ssh, config)
		if err == nil {
			return &Session{client: s, Console: m.Console}, nil
		}
		config.Timeout += 5 * time.Second // a machine beside others may take long for its half
		select {
		case <-time.After(time.Second):
		case <-m.done:
			if ctx.Err() == nil { // else its end ended the machine
				err = ErrEnded
			}
			return nil, fmt.Errorf("log in to %s: %w", m.Name, err)
		case <-ctx.Done():
			return nil, fmt.Errorf("log in to %s: %w", m.Name, err)
		}
	}
}

// Refused reports whether the machine lets a user with a key not in. It keeps trying until
// ctx ends: sshd turns away for a while the clients that it has refused, without a look at the key.
func (m *Machine) Refused(ctx context.Context, user string, key ssh.Signer) (bool, error) {
	for {
		c, err := dial(ctx, m.ssh, client(user, key))
		switch {
		case err == nil:
			return false, c.Close()
		case strings.Contains(err.Error(), "unable to authenticate"):
			return true, nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return false, fmt.Errorf("ask %s whether it lets %s in: %w", m.Name, user, err)
		}
	}
}

func client(user string, key ssh.Signer) *ssh.ClientConfig {
	return &ssh.ClientConfig{
		User:            user,
		Auth:            []ssh.AuthMethod{ssh.PublicKeys(key)},
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), // a diskless node has a new key each boot; it stands on its console
		Timeout:         20 * time.Second,
	}
}

func dial(ctx context.Context, addr string, config *ssh.ClientConfig) (*ssh.Client, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	// QEMU accepts before the guest listens, so the banner may never come.
	_ = conn.SetDeadline(time.Now().Add(config.Timeout)) // a dead connection fails at the next use
	c, channels, requests, err := ssh.NewClientConn(conn, addr, config)
	if err != nil {
		_ = conn.Close() // err says what failed
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{}) // a dead connection fails at the next use
	return ssh.NewClient(c, channels, requests), nil
}

// ErrLost is the error of a command with which the connection went: the machine may have started over.
var ErrLost = errors.New("the connection to the machine is lost")

// Session is an open login.
type Session struct {
	Console *Console // of the machine
	client  *ssh.Client
}

// maxOutput is how much of what a command prints is kept, of each stream.
const maxOutput = 8 << 20

// printed keeps the beginning of what a command prints. It takes all of it: a command that
// is not read from stands still. It is not a bytes.Buffer, whose ReadFrom would go round Write.
type printed struct{ text []byte }

func (p *printed) Write(data []byte) (int, error) {
	p.text = append(p.text, data[:min(len(data), maxOutput-len(p.text))]...)
	return len(data), nil
}

func (p *printed) String() string { return strings.TrimSpace(string(p.text)) }

// Run runs a command line and returns its trimmed standard output, the first 8 MiB of it.
// A command that fails is an error with what it said.
func (s *Session) Run(ctx context.Context, command string) (string, error) {
	return s.Send(ctx, command, nil)
}

// Send is [Session.Run] of a command that reads something.
func (s *Session) Send(ctx context.Context, command string, in io.Reader) (string, error) {
	stop := context.AfterFunc(ctx, func() { s.client.Close() }) // what waits below returns the error
	defer stop()
	session, err := s.client.NewSession()
	if err != nil {
		return "", lost(ctx, command, err)
	}
	defer session.Close() // the command has ended
	var out, errs printed
	session.Stdin, session.Stdout, session.Stderr = in, &out, &errs
	err = session.Run(command)
	switch _, ended := errors.AsType[*ssh.ExitError](err); {
	case ended:
		err = fmt.Errorf("%s: %w: %s", command, err, errs.String())
	case err != nil:
		err = lost(ctx, command, err)
	}
	return out.String(), err
}

// lost is the error of a command that did not end: ctx closes the connection, too.
func lost(ctx context.Context, command string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", command, context.Cause(ctx))
	}
	return fmt.Errorf("%s: %w: %w", command, ErrLost, err)
}

// Close ends the login.
func (s *Session) Close() error { return s.client.Close() }

// Console holds the output of a machine on its serial line. It may be used by several
// goroutines.
type Console struct {
	mu    sync.Mutex
	text  bytes.Buffer // without carriage returns
	log   io.Writer    // nil is none
	ended bool
	more  chan struct{} // closed and replaced at each change
}

func newConsole(log io.Writer) *Console { return &Console{log: log, more: make(chan struct{})} }

// Write implements io.Writer for the machine's output.
func (c *Console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text.Write(bytes.ReplaceAll(p, []byte("\r"), nil))
	c.changed()
	if c.log != nil {
		_, _ = c.log.Write(p) // a copy: who waits goes by the text
	}
	return len(p), nil
}

func (c *Console) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.changed()
}

// changed wakes who waits. The lock is held.
func (c *Console) changed() {
	close(c.more)
	c.more = make(chan struct{})
}

// String is everything printed so far, without carriage returns.
func (c *Console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// Len is how much has been printed; a later Wait can start there.
func (c *Console) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Len()
}

// Tail is the last lines, for messages.
func (c *Console) Tail(lines int) string {
	all := strings.Split(strings.TrimRight(c.String(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Wait waits until one of the markers stands on the console at or after from, and returns
// that marker: the first of the list, where several do. It ends with ErrEnded when the
// machine goes off without one.
func (c *Console) Wait(ctx context.Context, from int, markers ...string) (string, error) {
	for {
		c.mu.Lock()
		ended, more := c.ended, c.more
		text := c.text.Bytes()[min(from, c.text.Len()):]
		for _, marker := range markers {
			if bytes.Contains(text, []byte(marker)) {
				c.mu.Unlock()
				return marker, nil
			}
		}
		c.mu.Unlock()
		if ended {
			return "", fmt.Errorf("wait for %q: %w", markers, ErrEnded)
		}
		select {
		case <-more:
		case <-ctx.Done():
			return "", fmt.Errorf("wait for %q: %w", markers, context.Cause(ctx))
		}
	}
}

// Silent returns when nothing has been printed for so long, or when ctx ends.
func (c *Console) Silent(ctx context.Context, long time.Duration) {
	for {
		c.mu.Lock()
		more := c.more
		c.mu.Unlock()
		select {
		case <-more:
		case <-time.After(long):
			return
		case <-ctx.Done():
			return
		}
	}
}
