// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/tokentest"
)

// The command line's behaviour is written down in testdata/script: one file a
// verb and a case, run in this process. CAISSON_UPDATE=1 rewrites the
// files that are compared.
func TestMain(m *testing.M) {
	root.Enter()
	keys.Cost, keys.MinCost = 16, 16
	testscript.Main(tests{m}, map[string]func(){
		"caisson":  func() { os.Exit(run()) },
		"firmware": firmware, // programs for firmware and lists of its keys, see firmware_test.go
		"hsm":      hsm,      // holds a key for caisson, see signer_test.go
		"silent":   silent,
		"bake":     bake, // stands for caisson build, see newuser_test.go
		"ship":     ship, // pushes layers with all that belongs to them, see ship_test.go
		"swallow":  swallow,
		"agefile":  agefile, // stands for age(1), see secrets_test.go
		"visudo":   visudo,  // of a layer, see readers_test.go
	})
}

// compiled is a directory for programs that tests compile.
var compiled string

// tests are those of the package, with that directory.
type tests struct{ *testing.M }

func (m tests) Run() int {
	var err error
	if compiled, err = os.MkdirTemp("", "caisson-compiled-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(compiled) // it is a temporary directory
	return m.M.Run()
}

func TestScript(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       os.Getenv("CAISSON_UPDATE") != "",
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"fits": fits, "expires": expires},
	})
}

// expires sets a variable to when the signature of a document in a layout expires, as it is
// signed: expires VARIABLE LAYOUT REPOSITORY TAG.
func expires(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: expires VARIABLE LAYOUT REPOSITORY TAG")
	}
	src, err := pull.Open(oci.Ref{Layout: ts.MkAbs(args[1])}, pull.Options{})
	ts.Check(err)
	found, err := src.Manifest(context.Background(), args[2], args[3], "")
	ts.Check(err)
	kind := map[string]string{oci.RepoFleet: oci.TypeFleet, oci.RepoNode: oci.TypeOverlay}[args[2]]
	_, bundles, err := oci.ReadDocument(context.Background(), src, found, oci.Artifact{Repo: args[2], Type: kind, Limit: oci.MaxFleet})
	ts.Check(err)
	var bundle struct{ DsseEnvelope struct{ Payload []byte } }
	ts.Check(json.Unmarshal(bundles[0], &bundle))
	var said struct{ Predicate struct{ Expires time.Time } }
	ts.Check(json.Unmarshal(bundle.DsseEnvelope.Payload, &said))
	ts.Setenv(args[0], said.Predicate.Expires.Format(time.RFC3339))
}

// TestSlowScript runs scripts that wait for what happens every few seconds.
func TestSlowScript(t *testing.T) {
	require.Slow(t)
	t.Parallel()
	testscript.Run(t, testscript.Params{Dir: "testdata/slow", RequireExplicitExec: true})
}

// TestRegistryScript runs scripts against a registry server with TLS and a login. In
// them, home is empty, and the file password holds the right one.
func TestRegistryScript(t *testing.T) {
	require.Slow(t)
	t.Parallel()
	runWithRegistry(t, "testdata/registry")
}

func runWithRegistry(t *testing.T, dir string) {
	addr, ca := registrytest.Private(t)
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"fits": fits},
		Setup: func(e *testscript.Env) error {
			home := filepath.Join(e.WorkDir, "home")
			for name, value := range map[string]string{"REGISTRY": addr, "CA": ca, "PASSWORD": registrytest.Password, "HOME": home} {
				e.Setenv(name, value)
			}
			return errors.Join(os.Mkdir(home, 0o700), os.WriteFile(filepath.Join(e.WorkDir, "password"), []byte(registrytest.Password+"\n"), 0o600))
		},
	})
}

// silent is a server that takes connections and never answers. It writes its
// address to the file that is its argument, and says beside it that somebody asks.
func silent() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = os.WriteFile(os.Args[1], []byte(l.Addr().String()), 0o644)
	}
	for held := []net.Conn{}; err == nil; { // one that nobody holds is closed
		var c net.Conn
		if c, err = l.Accept(); err == nil {
			held = append(held, c)
			err = os.WriteFile(os.Args[1]+".asked", nil, 0o644)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// swallow is a registry that holds nothing, and takes uploads without an end. It writes
// its address to the file that is its argument, and says beside it that one has begun.
func swallow() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = os.WriteFile(os.Args[1], []byte(l.Addr().String()), 0o644)
	}
	if err == nil {
		err = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			switch req.Method {
			case http.MethodPost:
				w.Header().Set("Location", "/v2/upload")
				w.WriteHeader(http.StatusAccepted)
			case http.MethodPatch:
				_ = os.WriteFile(os.Args[1]+".upload", nil, 0o644) // the script waits for it
				<-req.Context().Done()
			default:
				if req.URL.Path != "/v2/" {
					http.NotFound(w, req)
				}
			}
		}))
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// The verbs that need root and the builder's tools have scripts of their own, so
// that a machine without them says so instead of passing.
func TestRootScript(t *testing.T) {
	require.Root(t)
	require.Net(t)
	require.Tool(t, "mmdebstrap", "mksquashfs", "xz", "apt-get")
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/root",
		UpdateScripts:       os.Getenv("CAISSON_UPDATE") != "",
		RequireExplicitExec: true,
	})
}

// TestLongTwice runs a script that builds a layer twice.
func TestLongTwice(t *testing.T) {
	require.Long(t)
	require.Root(t)
	require.Net(t)
	require.Tool(t, "mmdebstrap", "mksquashfs", "xz", "apt-get")
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/long",
		RequireExplicitExec: true,
		Setup:               func(e *testscript.Env) error { e.Setenv("AGENT", agentBinary(t)); return nil },
	})
}

// TestTokenScript runs scripts beside a token that has a key for each role. In them,
// "$TOKEN LABEL" is the program that asks it.
func TestTokenScript(t *testing.T) {
	t.Parallel()
	environment := tokentest.New(t, "root", "root2", "operator", "release", "attestation", "epoch")
	program, err := filepath.Abs("../../examples/signer/pkcs11")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/token",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("TOKEN", program)
			for name, value := range environment {
				e.Setenv(name, value)
			}
			return nil
		},
	})
}
