// SPDX-License-Identifier: Apache-2.0

// Program provider is an OpenID provider for tests: zitadel's, with two people and groups that a
// file gives them. It prints its issuer, and ends with its standard input.
//
//	provider CALLBACK GROUPS
//
// GROUPS is a JSON object, read again at each question: the id of a person (id1, id2) to a list. It is
// a module of its own, so that caisson does not link it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "provider:", err)
		os.Exit(1)
	}
}

func run(callback, groups string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	issuer := fmt.Sprintf("http://%s/", l.Addr())
	storage.RegisterClients(storage.WebClient("caisson", "secret of caisson", callback))
	users := grouped{storage.NewStorage(storage.NewUserStore(issuer)), groups}
	handler := exampleop.SetupServer(issuer, users, slog.New(slog.DiscardHandler), false)
	fmt.Println(issuer)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // the test that began it is over
		os.Exit(0)
	}()
	return http.Serve(l, handler)
}

// grouped is a storage whose people have groups.
type grouped struct {
	*storage.Storage
	file string
}

func (g grouped) SetUserinfoFromRequest(ctx context.Context, info *oidc.UserInfo, request op.IDTokenRequest, scopes []string) error {
	if err := g.Storage.SetUserinfoFromRequest(ctx, info, request, scopes); err != nil {
		return err
	}
	return g.add(info, request.GetSubject())
}

func (g grouped) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, token, subject, origin string) error {
	if err := g.Storage.SetUserinfoFromToken(ctx, info, token, subject, origin); err != nil {
		return err
	}
	return g.add(info, subject)
}

func (g grouped) add(info *oidc.UserInfo, subject string) error {
	text, err := os.ReadFile(g.file)
	if err != nil {
		return err
	}
	var of map[string][]string
	if err := json.Unmarshal(text, &of); err != nil {
		return err
	}
	if list, ok := of[subject]; ok {
		info.AppendClaims("groups", list)
	}
	return nil
}
