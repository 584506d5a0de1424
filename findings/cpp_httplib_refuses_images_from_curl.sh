#!/usr/bin/env bash
# cpp-httplib 0.11.4 (Debian 12's libcpp-httplib0.11, 0.11.4+ds-1+deb12u1) and curl.
# Guess: `curl --data-binary @photo.jpg` posts an image to a server whose set_payload_max_length allows 64 MB.
# Seen: 413 for every content beyond 8 KiB. curl calls content of which nobody says what it is a form,
# application/x-www-form-urlencoded, and the server has another limit for forms, a constant of its build, which its
# interface neither names nor sets. With a Content-Type, any, the same image arrives.
set -euo pipefail
folder=$(mktemp -d)
server=
trap '[[ -z $server ]] || kill "$server"; rm -rf "$folder"' EXIT
cd "$folder"
version=0.11.4+ds-1+deb12u1
apt-get download --quiet=2 "libcpp-httplib-dev=$version" "libcpp-httplib0.11=$version"
for package in *.deb; do dpkg-deb -x "$package" .; done
cat >server.cpp <<'CPP'
#include <httplib.h>
#include <iostream>
int main() {
  httplib::Server server;
  server.set_payload_max_length(64 << 20);
  server.Post("/", [](const httplib::Request& request, httplib::Response& answer) {
    answer.set_content(std::to_string(request.body.size()), "text/plain");
  });
  std::cout << server.bind_to_any_port("127.0.0.1") << std::endl;
  server.listen_after_bind();
}
CPP
libraries=$(dirname "$(find "$folder/usr/lib" -name 'libcpp-httplib.so.0.11' | head -n 1)")
c++ -std=c++17 -O0 -Iusr/include server.cpp -o server "$libraries/libcpp-httplib.so.0.11" -pthread
LD_LIBRARY_PATH=$libraries ./server >port &
server=$!
until [[ -s port ]]; do sleep 0.1; done

ask() { curl --silent --output answer --write-out '%{http_code}' "$@" "http://127.0.0.1:$(<port)/"; }
head -c 8192 /dev/urandom >small
head -c 8193 /dev/urandom >large
status=() bytes=()
for arguments in '--data-binary @small' '--data-binary @large' '--data-binary @large --header Content-Type:image/jpeg'; do
  # shellcheck disable=SC2086 # words
  status+=("$(ask $arguments)") bytes+=("$(<answer)")
  echo "curl $arguments: ${status[-1]}, ${bytes[-1]:-nothing}"
done
[[ ${status[*]} == "200 413 200" && ${bytes[0]} == 8192 && ${bytes[2]} == 8193 ]]
