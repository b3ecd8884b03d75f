// Command zitadel is the example OpenID provider of github.com/zitadel/oidc, unchanged but for its issuer, clients and
// users: zitadel ISSUER SOCKET. Its user is ann, the password verysecure.
package main

import (
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
)

func main() {
	issuer, socket := os.Args[1], os.Args[2]
	storage.RegisterClients(
		storage.NativeClient("native", "http://127.0.0.1/callback"),
		storage.DeviceClient("device", "inner-canary-of-the-device"),
	)
	// Its login by device takes the name of a user for the id.
	users := socket + ".users"
	text := `{"ann": {"ID": "ann", "Username": "ann", "Password": "verysecure", "Email": "ann@example.com", "EmailVerified": true}}`
	if err := os.WriteFile(users, []byte(text), 0o600); err != nil {
		log.Fatal(err)
	}
	store, err := storage.StoreFromFile(users)
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready -")
	log.Fatal(http.Serve(l, exampleop.SetupServer(issuer, storage.NewStorage(store), slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), false)))
}
