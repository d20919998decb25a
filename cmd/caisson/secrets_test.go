// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/caisson-os/caisson/fleet/seal"
)

// agefile stands for age(1) in scripts: "agefile keygen FILE" makes a key and prints its
// recipient, "agefile encrypt RECIPIENT VALUE FILE" writes a file.
func agefile() {
	die := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if len(os.Args) == 3 && os.Args[1] == "keygen" {
		key, err := age.GenerateX25519Identity()
		die(err)
		die(os.WriteFile(os.Args[2], []byte(key.String()+"\n"), 0o600))
		fmt.Print(key.Recipient())
		os.Exit(0)
	}
	to, err := age.ParseX25519Recipient(os.Args[2])
	die(err)
	f, err := os.Create(os.Args[4])
	die(err)
	w, err := age.Encrypt(f, to)
	die(err)
	_, err = io.WriteString(w, os.Args[3])
	die(err)
	die(w.Close())
	die(f.Close())
	os.Exit(0)
}

// A forged report has nothing sealed to it: what it says is compared with what was typed.
func TestAReportAloneIsNeverAccepted(t *testing.T) {
	forged, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	own, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	said := forged.Recipient().String()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"name":"n1","report":{"node":"n1","recipient":%q}}`, said)
	}))
	defer service.Close()
	dir := t.TempDir()
	text := "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: two}\nnodes: [{name: n1}]\n"
	if err := os.WriteFile(filepath.Join(dir, "site.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	accept := func(args ...string) error {
		a := newApp(io.Discard, io.Discard)
		root := a.root()
		root.SetArgs(append([]string{"secrets", "accept", filepath.Join(dir, "site.yaml"), "n1", "--at", service.URL}, args...))
		return root.ExecuteContext(t.Context())
	}
	lock := filepath.Join(dir, seal.RecipientsName)
	for _, args := range [][]string{nil, {"--recipient", own.Recipient().String()}} {
		if err := accept(args...); err == nil {
			t.Errorf("%q: it is accepted", args)
		}
		if _, err := os.Stat(lock); !os.IsNotExist(err) {
			t.Errorf("%q: there is a lock, %v", args, err)
		}
	}
	said = own.Recipient().String()
	if err := accept("--recipient", said); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(lock); err != nil || !strings.Contains(string(data), said) || strings.Contains(string(data), forged.Recipient().String()) {
		t.Errorf("%s, %v", data, err)
	}
}
