// SPDX-License-Identifier: Apache-2.0

// Package sshd stands in the place of QEMU for tests of what talks to a machine: it answers as
// the sshd of one, and each command is a script's to answer. It boots nothing.
//
//	func TestMain(m *testing.M) { sshd.Main(); os.Exit(m.Run()) }
//
//	dir := sshd.Use(t, `case "$1" in uptime) echo up;; reboot) exit 255;; esac`)
//
// The connection is lost with a command that ends with 255, and the machine goes off where the
// script ends its parent. Only tests import it.
package sshd

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

// script names the file that answers.
const script = "CAISSON_SSHD_SCRIPT"

// lost is the exit code of a command with which the connection goes.
const lost = 255

// Use has machines that are started answer by a script: $1 is the command, $PWD the directory that
// is returned. A probe of KVM succeeds.
func Use(t *testing.T, answers string) (dir string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	qemu := fmt.Sprintf("#!/bin/sh\ncase \"$*\" in *isa-debug-exit*) exit 33;; *panic=-1) exit 0;; esac\ncd %s\n%s=%s/answers exec %s \"$@\"\n",
		dir, script, dir, self)
	for name, text := range map[string]string{"qemu-system-x86_64": qemu, "busybox": "#!/bin/sh\n", "answers": answers} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

// Main is the program where it was started in the place of QEMU, and does not return then.
func Main() {
	if os.Getenv(script) == "" {
		return
	}
	at := regexp.MustCompile("hostfwd=tcp:([0-9.:]+)-").FindStringSubmatch(strings.Join(os.Args, " "))
	if at == nil {
		fmt.Println("no port is forwarded")
		os.Exit(1)
	}
	fmt.Println(serve(at[1])) // on the console
	os.Exit(1)
}

func serve(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return err
	}
	config := &ssh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(signer)
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close() // as a machine that starts over does
			_, channels, requests, err := ssh.NewServerConn(conn, config)
			if err != nil {
				return
			}
			go ssh.DiscardRequests(requests)
			for c := range channels {
				channel, asked, err := c.Accept()
				if err != nil {
					return
				}
				go session(conn, channel, asked)
			}
		}()
	}
}

// session runs the one command of a session.
func session(conn net.Conn, channel ssh.Channel, asked <-chan *ssh.Request) {
	for r := range asked {
		var command struct{ Line string }
		if r.Type != "exec" || ssh.Unmarshal(r.Payload, &command) != nil {
			_ = r.Reply(false, nil) // the client says so
			continue
		}
		_ = r.Reply(true, nil) // a connection that is gone ends the loop
		cmd := exec.Command("sh", os.Getenv(script), command.Line)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = channel, channel, channel.Stderr()
		err := cmd.Run()
		var exit *exec.ExitError
		code := 0
		if errors.As(err, &exit) {
			code = exit.ExitCode()
		}
		if code == lost {
			_ = conn.Close() // which is what is wanted
			return
		}
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Code uint32 }{uint32(code)})) // as above
		_ = channel.Close()                                                                                // as above
	}
}
