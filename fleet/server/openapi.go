// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/view"
)

// answers are the types of what routes answer with 200.
var answers = map[string]any{
	"GET /v1/summary": query.Summary{}, "GET /v1/nodes": query.List{}, "GET /v1/rollouts": Rollouts{},
	"GET /v1/nodes/{node}": query.Node{}, "GET /v1/services": query.Services{}, "GET /v1/layers": Layers{},
	"GET /v1/unknown": Unknown{}, "GET /v1/generations": []history.Entry{}, "GET /v1/generations/{range}": history.Difference{},
	"GET /v1/slots": Slots{},
}

// orders name the columns that a list is sorted by, from either end.
func orders() (list []view.Order) {
	for _, o := range view.Orders {
		list = append(list, o, "-"+o)
	}
	return list
}

var parameter = regexp.MustCompile(`\{(\w+)\}`)

// openAPI describes the API in OpenAPI 3.1, from the table of routes and from the types
// that they answer with.
func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) {
	paths := map[string]map[string]any{}
	for _, r := range s.routes() {
		if r.says == "" {
			continue
		}
		method, path, _ := strings.Cut(r.pattern, " ")
		done := map[string]any{"description": "Done."}
		if t, ok := answers[r.pattern]; ok {
			reflector := jsonschema.Reflector{ExpandedStruct: true, Anonymous: true, DoNotReference: true}
			schema := reflector.Reflect(t)
			schema.Version = ""
			done["content"] = map[string]any{"application/json": map[string]any{"schema": schema}}
		}
		ok := "200"
		if method == "POST" && !strings.Contains(path, "-") {
			ok = "204"
		}
		operation := map[string]any{"summary": r.says, "responses": map[string]any{ok: done, "default": map[string]any{"description": "An error.",
			"content": map[string]any{"application/json": map[string]any{"schema": map[string]any{"type": "object",
				"properties": map[string]any{"kind": map[string]any{"type": "string"}, "value": map[string]any{"type": "string"},
					"hint": map[string]any{"type": "string"}}}}}}}}
		if r.role != Nobody {
			operation["security"] = []any{map[string]any{"token": []string{}}}
			operation["description"] = "Needs a token of role " + string(r.role) + ", where the service has tokens."
		}
		var parameters []any
		for _, m := range parameter.FindAllStringSubmatch(path, -1) {
			parameters = append(parameters, map[string]any{"name": m[1], "in": "path", "required": true, "schema": map[string]any{"type": "string"}})
		}
		if r.pattern == "GET /v1/nodes" {
			for _, name := range query.Parameters {
				schema := map[string]any{"type": "string"}
				switch name {
				case "condition":
					schema["enum"] = view.ConditionWords()
				case "sort":
					schema["enum"] = orders()
				case "from", "most":
					schema["type"] = "integer"
				case "label", "setting":
					schema = map[string]any{"type": "array", "items": schema, "maxItems": query.MaxLabels} // as in label=a=1&label=b=2
				}
				parameters = append(parameters, map[string]any{"name": name, "in": "query", "schema": schema})
			}
		}
		if parameters != nil {
			operation["parameters"] = parameters
		}
		if paths[path] == nil {
			paths[path] = map[string]any{}
		}
		paths[path][strings.ToLower(method)] = operation
	}
	s.answer(w, http.StatusOK, map[string]any{
		"openapi":    "3.1.0",
		"info":       map[string]any{"title": "caisson fleet serve", "version": "v1", "description": "What a fleet's nodes should be and are."},
		"paths":      paths,
		"components": map[string]any{"securitySchemes": map[string]any{"token": map[string]any{"type": "http", "scheme": "bearer"}}},
	})
}
